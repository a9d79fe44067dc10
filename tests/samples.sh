#!/bin/sh
# Installs the build and moves the installed tree. Builds the C sample by pkg-config and by CMake, and trains with it.
# usage: samples.sh SOURCE BUILD
set -eu
source=$1
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
PKG_CONFIG_PATH=$(dirname "$(find "$work/moved" -name protrain.pc)")
export PKG_CONFIG_PATH

cp -r "$source/samples/c" "$work/c"
make -s -C "$work/c" clean finetune
"$work/c/finetune" "$source/tests/fixtures/gpt2-dynamic-opset18.onnx" /usr/share/common-licenses/GPL-3 30 6MiB "$work" \
  >"$work/log"
test -s "$work/trained.onnx"
awk '{loss = $NF} NR == 1 {first = loss} END {exit !(loss < first)}' "$work/log"
"$work/moved/bin/protrain" check "$work/trained.onnx" >/dev/null

make -s -C "$work/c" adapt
"$work/c/adapt" "$source/tests/fixtures/gpt2-dynamic-opset18.onnx" /usr/share/common-licenses/GPL-3 10 '*.c_attn.weight' \
  "$work" >"$work/log"
awk '$1 == "adapted" {better = $2 < $4} END {exit !better}' "$work/log"  # than the base
"$work/moved/bin/protrain" merge "$source/tests/fixtures/gpt2-dynamic-opset18.onnx" "$work/adapter" "$work/again.onnx"
cmp "$work/again.onnx" "$work/merged.onnx"

mkdir "$work/cmake"
cat >"$work/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(protrain 0.1 REQUIRED)
add_executable(finetune ../c/finetune.c)
target_link_libraries(finetune protrain::protrain)
CMAKE
cmake -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$work/moved" >/dev/null
cmake --build "$work/cmake/build" >/dev/null
test -x "$work/cmake/build/finetune"
