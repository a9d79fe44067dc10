#!/bin/sh
# Compares the binary interface with the one stored in protrain.abi. Any difference fails, even an added function.
# --announce stores the present interface in protrain.abi; commit the file together with the change.
# usage: abi.sh SOURCE BUILD [--announce]
#
# The compiler ensures that the library has the signatures, types and enumerators of protrain.h. So the script compiles
# the header into a library of empty functions, and reads the interface from its debug information. The symbols, their
# versions and the SONAME must also be those of the built library.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
baseline=$source/tests/install/protrain.abi
command -v abidw >/dev/null && command -v abidiff >/dev/null || {
  echo "abi: not tried, there is no abidiff here (Debian's abigail-tools)"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# Puts each declaration on a line of its own, and gives each exported function a body. No function of the header has a
# protrain_dtype in its signature, so a function that has one is added.
{
  ${CC:-cc} -E -P "$source/include/protrain.h" | tr '\n' ' ' | sed 's/;/;\n/g' |
    sed '/visibility("default")/s/;$/ {__builtin_trap();}/'
  echo 'protrain_dtype protrain_dtype_of_nothing(void) {__builtin_trap();}'
} >interface.c
real=$(ls "$build"/libprotrain.so.*.*.*)
soname=$(objdump -p "$real" | awk '$1 == "SONAME" {print $2}')
${CC:-cc} -g -fPIC -shared -Wl,-soname,"$soname" -Wl,--version-script="$source/cmake/protrain.map" interface.c \
  -o libinterface.so
for library in "$real" libinterface.so; do
  nm -D --defined-only "$library" | awk '$2 == "T" && !/_of_nothing/ {print $3}' >"${library##*/}.symbols"
done
diff libinterface.so.symbols "${real##*/}.symbols" || {
  echo "abi: the library has other symbols than protrain.h" >&2
  exit 1
}
abidw --no-architecture --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed libinterface.so >now.abi
if [ "${3:-}" = --announce ]; then
  cp now.abi "$baseline"
  exit
fi
abidiff --no-architecture --harmless "$baseline" now.abi || {
  echo "abi: if that is meant: sh tests/install/abi.sh $source $build --announce; commit protrain.abi with it" >&2
  exit 1
}
