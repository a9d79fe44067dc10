#!/bin/sh
# Compares the binary interface with the one that protrain.abi holds. Every change fails, additions too, until it is
# announced: with --announce protrain.abi becomes what there is now, and goes into the commit that makes the change.
# usage: abi.sh SOURCE BUILD [--announce]
#
# Signatures, types and enumerators are those of protrain.h, which the compiler holds the library to: of the header a
# library of empty functions is made, whose debug information is the interface and nothing else. Its symbols, their
# versions and its SONAME must be those of the library that was built.
set -eu
source=$1
build=$2
baseline=$source/tests/install/protrain.abi
command -v abidw >/dev/null && command -v abidiff >/dev/null || {
  echo "abi: not tried, there is no abidiff here (Debian's abigail-tools)"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# One declaration a line; functions are what is marked as visible. No signature has a protrain_dtype: one is given one.
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
