#!/bin/sh
# Installs what is needed, builds everything, runs every test.
# usage: test.sh [PRESET]    release (the default), dev, asan or tsan
set -eu
cd "$(dirname "$0")/.."
preset=${1:-release}

scripts/install-dependencies.sh test
# The test of exported models needs onnxruntime from PyPI and is skipped without it.
if [ -z "${PROTRAIN_PYTHON:-}" ] && python3 -m venv build/python && build/python/bin/pip install -q onnxruntime numpy; then
  PROTRAIN_PYTHON=$PWD/build/python/bin/python
fi
export PROTRAIN_PYTHON="${PROTRAIN_PYTHON:-python3}"

# CI edits nothing, so large batches of sources are better. GCC may use 2 GiB before it collects garbage, which saves a
# tenth of its time. CI has no GPU and installs nothing, so the CUDA plugin is compiled for one architecture, and not
# optimised.
cmake --preset "$preset" -DPROTRAIN_BENCH=ON ${CI:+-DPROTRAIN_UNITY_BATCH=32
  -DCMAKE_CXX_FLAGS=--param=ggc-min-heapsize=2097152
  -DPROTRAIN_CUDA_ARCHITECTURES=90-real "-DCMAKE_CUDA_FLAGS=-Xcicc -O0 -Xptxas -O0" -DCMAKE_CUDA_FLAGS_RELEASE=-DNDEBUG}
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel "$(($(nproc) + 3))"  # some tests mostly wait
echo "All tests of the $preset build have passed."
