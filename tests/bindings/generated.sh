#!/bin/sh
# Regenerates the bindings and compares them with the committed files. Those of Go and Java are compared only if SWIG has
# the version that wrote them. Then checks that each language has every exported function in its generated layer, and
# that the layer above calls it.
# usage: generated.sh SOURCE BUILD [LANGUAGES]
set -eu
source=$1
build=$2
languages=${3:-go java rust}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
library=$(find "$work/prefix" -name libprotrain.so.0)
failed=0
complain() {
  echo "$*"
  failed=1
}

cp -r "$source/include" "$source/bindings" "$work"
wrote=$(sed -n 's/^ \* Version \([0-9.]*\)$/\1/p' "$source/bindings/go/internal/lib/lib_wrap.hxx")
test -n "$wrote"
has=$(swig -version | sed -n 's/^SWIG Version //p')
for language in $languages; do
  if [ "$language" != rust ] && [ "$has" != "$wrote" ]; then
    echo "bindings/$language was written by SWIG $wrote and is not compared with what SWIG $has writes"
    continue
  fi
  "$work/bindings/generate.sh" "$language"
  diff -r -x target "$source/bindings/$language" "$work/bindings/$language" ||
    complain "bindings/$language differs from what bindings/generate.sh $language writes"
done

symbols=$(nm -D --defined-only "$library" | sed -n 's/.* T \(protrain_[a-z_]*\).*/\1/p')
test -n "$symbols"
for symbol in $symbols; do
  name=${symbol#protrain_}
  case $symbol in
    # `crossed` is the function's name in the generated layers of Go and Java. The generated wrappers themselves read
    # errors, so no upper layer calls protrain_error_*. protrain.i replaces the set_log functions by its own.
    protrain_error_*) crossed= ;;
    protrain_*_set_log) crossed=${name%set_log}log ;;
    *) crossed=$name ;;
  esac
  for language in $languages; do
    case $language in
      go)
        generated=internal/lib/lib_wrap.cxx
        above=.
        call=lib.$(echo "$crossed" | sed 's/^./\U&/')
        ;;
      java)
        generated=jni/protrain_jni.cpp
        above=src/ai/protrain
        call=Native[.:]*$crossed
        ;;
      rust)
        generated=protrain-sys/src/bindings.rs
        above=protrain/src
        call=$symbol
        crossed=$symbol
        ;;
    esac
    folder=$source/bindings/$language
    grep -qw "$symbol" "$folder/$generated" || complain "$symbol is not in bindings/$language/$generated"
    test -z "$crossed" || cat $(find "$folder/$above" -maxdepth 1 -type f ! -name '*_test.go') | grep -q "\<$call\>" ||
      complain "$call is not called in bindings/$language/$above"
  done
done
exit $failed
