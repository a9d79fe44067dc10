#!/bin/sh
# Measures how much longer a call through the Java layer takes than the same call in C. Prints nanoseconds as JSON. The
# fastest of many rounds of each counts.
# usage: run.sh    needs an installed libprotrain: PKG_CONFIG_PATH=/the/prefix/lib/pkgconfig
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
model=$root/tests/fixtures/gpt2-dynamic-opset18.onnx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2046
cc -O2 -D_GNU_SOURCE $(pkg-config --cflags protrain) "$here/calls.c" $(pkg-config --libs protrain) \
  -Wl,-rpath,"$(pkg-config --variable=libdir protrain)" -o "$work/calls"
make -s -C "$root/bindings/java" OUT="$work/java"
javac -cp "$work/java/protrain.jar" -d "$work" "$here/Calls.java"
"$work/calls" "$model" >"$work/c"
java -cp "$work/java/protrain.jar:$work" Calls "$model" >"$work/j"
paste -d ' ' "$work/c" "$work/j" |
  awk '{printf "%s\"%s\":{\"c\":%d,\"java\":%d,\"over\":%d}", NR == 1 ? "{" : ",", $1, $2, $4, $4 - $2} END {print "}"}'
