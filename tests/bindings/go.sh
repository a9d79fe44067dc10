#!/bin/sh
# Builds the Go layer against an installed libprotrain and tests it, under the race detector and all checks of cgo.
# Then runs docs/go.md.
# usage: go.sh SOURCE BUILD
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"  # shows that an installed tree can be moved
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name protrain.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name libprotrain.so.0)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
export XDG_CACHE_HOME="$build/cache" GOCACHE="$build/cache/go" GOPATH="$work/go" GOPROXY=off
export CGO_CXXFLAGS="-O0 -DWORK=$work" # Go's cache depends on these flags, but not on headers
export PROTRAIN_FIXTURES="$source/tests/fixtures"

cd "$source/bindings/go"
unformatted=$(gofmt -l ./*.go internal/lib/failure.go "$source/samples/go" "$source/bench/bindings/go")
test -z "$unformatted" || { echo "gofmt would change $unformatted"; exit 1; }
for folder in "$source/samples/go" "$source/bench/bindings/go" .; do
  (cd "$folder" && go vet .)
done
# Checks every pointer that crosses to C. Go 1.21 and later decide so when they compile.
case $(go env GOVERSION) in
  go1.19* | go1.20*) go test -race -c -o "$work/test" . && GODEBUG=cgocheck=2 "$work/test" ;;
  *) GOEXPERIMENT=cgocheck2 go test -race -c -o "$work/test" . && "$work/test" ;;
esac

cc -shared -fPIC $(pkg-config --cflags protrain) "$source/tests/bindings/every_code.c" -o "$work/every_code.so"
LD_PRELOAD="$work/every_code.so" "$work/test" -test.v -test.run TestEveryCode >"$work/log" || true
grep -q '^--- PASS: TestEveryCode' "$work/log" || { cat "$work/log"; exit 1; }

sh "$source/tests/bindings/page.sh" "$source" "$build" go.md >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep -q '^step 50  loss [23]' "$work/log" || { cat "$work/log"; exit 1; }
