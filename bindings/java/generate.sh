#!/bin/sh
# Writes what SWIG makes of ../protrain.i: jni/protrain_jni.cpp and classes of the package ai.protrain.internal. Run it
# after a change of protrain.h, protrain.i or java.i, and commit what it writes.
# usage: generate.sh [DIRECTORY]    writes to DIRECTORY instead of this folder
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here}
mkdir -p "$out/jni" "$out/src/ai/protrain/internal"
cd "$here/.."
swig -c++ -java -package ai.protrain.internal -module Native -I../include -outdir "$out/src/ai/protrain/internal" \
  -o "$out/jni/protrain_jni.cpp" -oh "$out/jni/protrain_jni.h" protrain.i
