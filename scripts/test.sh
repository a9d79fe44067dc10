#!/bin/sh
# Installs what is needed, builds everything, runs every test.
# usage: test.sh [PRESET]    dev (the default), release, asan or tsan
set -eu
cd "$(dirname "$0")/.."
preset=${1:-dev}

scripts/install-dependencies.sh
cmake --preset "$preset"
cmake --build --preset "$preset"
ctest --preset "$preset" --parallel "$(nproc)"
echo "All tests of the $preset build have passed."
