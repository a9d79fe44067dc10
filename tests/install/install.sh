#!/bin/sh
# Installs the build twice, moves it, and trains with it from programs that Make, CMake and Meson build.
# usage: install.sh SOURCE BUILD
set -eu
source=$1
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$work/cache}"
fail() {
  echo "install: $*" >&2
  exit 1
}

# No installed file may contain its path. So installing to another prefix with DESTDIR must give the same files.
cmake --install "$build" --prefix "$work/first" >/dev/null
DESTDIR=$work/root cmake --install "$build" --prefix /opt/protrain >/dev/null
diff -r "$work/first" "$work/root/opt/protrain" || fail "the prefix is in a file"
[ -z "$(find "$work/root" ! -type d ! -path "$work/root/opt/protrain/*")" ] || fail "files beside the prefix"
! grep -rlIF -e "$build" -e "$source" -e "$work" "$work/first" || fail "these files hold a path of the build"
mkdir "$work/far"
mv "$work/first" "$work/far/moved"
prefix=$work/far/moved
pc=$(find "$prefix" -name protrain.pc)
libraries=$(dirname "$(dirname "$pc")")
for file in bin/protrain include/protrain.h share/man/man1/protrain.1 share/bash-completion/completions/protrain; do
  [ -f "$prefix/$file" ] || fail "$file was not installed"
done

# The transports that were built must be in the library's folder, where the library looks for them.
for plugin in openmpi mpich gloo nccl; do
  [ ! -f "$build/libprotrain_$plugin.so" ] || [ -f "$libraries/libprotrain_$plugin.so" ] || fail "no $plugin was installed"
done
if [ -f "$libraries/libprotrain_gloo.so" ]; then
  fixtures=$source/tests/fixtures
  mkdir "$work/meet"
  for rank in 1 0; do
    "$prefix/bin/protrain" train "$fixtures/gpt2-dynamic-opset18.onnx" --steps 2 --threads 1 --ranks 2 --rank $rank \
      --rendezvous "$work/meet" --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" \
      >"$work/rank-$rank" &
  done
  wait
  grep -q '^step 2/2' "$work/rank-0" || fail 'two ranks did not train'
fi

# The library has one SONAME, and both libraries export only the functions of protrain.h.
readelf -d "$libraries/libprotrain.so" | grep -q 'SONAME.*\[libprotrain\.so\.0\]' || fail "another SONAME"
(cd "$work" && sh "$source/tests/api/symbols.sh" "$libraries/libprotrain.so" "$prefix/include/protrain.h")
nm -D --defined-only "$libraries/libprotrain.so" | sed -n 's/.* T \(.*\)@@PROTRAIN_0$/\1/p' | sort >"$work/exported"
nm -g --defined-only "$libraries/libprotrain.a" | awk 'NF == 3 {print $3}' | sort >"$work/global"
diff "$work/exported" "$work/global" || fail "the static library has other symbols"

export PKG_CONFIG_PATH="$libraries/pkgconfig"
pkg-config --validate protrain
[ "protrain $(pkg-config --modversion protrain)" = "protrain $("$prefix/bin/protrain" --version)" ] ||
  fail "protrain.pc has another version than the command"
for word in $(pkg-config --libs protrain); do
  case $word in
    -L* | -l*) ;;
    *) fail "protrain.pc asks for $word: cgo and others take -L and -l alone" ;;
  esac
done

cp "$source"/tests/install/consumers/* "$work"
make -s -C "$work"
cmake -S "$work" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/cmake" >/dev/null
if command -v meson >/dev/null; then
  meson setup "$work/meson" "$work" >/dev/null
  meson compile -C "$work/meson" >/dev/null
else
  echo "install: no meson here: not tried with it"
fi
sed 's/(protrain 0.1/(protrain 0.2/' "$source/tests/install/consumers/CMakeLists.txt" >"$work/CMakeLists.txt"
! cmake -S "$work" -B "$work/newer" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 || fail "0.1 was taken for 0.2"
grep -q 'compatible with requested version' "$work/log" || fail "$(cat "$work/log")"

# Programs built by CMake and Meson find the library by themselves. The one built by Make needs LD_LIBRARY_PATH.
model=$source/tests/fixtures/gpt2-dynamic-opset18.onnx
expected=$(LD_LIBRARY_PATH=$libraries "$work/shared" "$model")
for program in static cmake/shared cmake/static meson/shared meson/static; do
  [ -x "$work/$program" ] || [ "${program%/*}" = meson ] || fail "no $program was built"
  [ -x "$work/$program" ] || continue
  [ "$("$work/$program" "$model")" = "$expected" ] || fail "$program does not print $expected"
  case $program in
    *static) ! ldd "$work/$program" | grep libprotrain || fail "$program is not static" ;;
  esac
done
"$prefix/bin/protrain" check "$model" >/dev/null
