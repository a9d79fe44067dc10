#!/bin/sh
# Regenerates the declarations of protrain-sys from bindings/protrain.i. Needs swig and python3; building the crates
# needs neither.
# usage: generate.sh [OUTPUT]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
header=$here/../../include/protrain.h
output=${1:-$here/protrain-sys/src/bindings.rs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
swig -xml -I"$(dirname "$header")" -o "$work/protrain.xml" "$here/../protrain.i"
python3 "$here/generate.py" "$work/protrain.xml" "$header" >"$work/bindings.rs"
cp "$work/bindings.rs" "$output"
