#!/bin/sh
# Packs all that is needed to check and time this build of libprotrain on a GPU machine where nothing can be installed:
#     tests/gpu/bundle.sh BUILD OUT.tgz [--emulated] [MODEL.onnx ...]
#   BUILD      a build folder with protrain_command, protrain_cuda, test_conformance and gpu_ballast, made with
#              -DPROTRAIN_STATIC=OFF -DPROTRAIN_CUDA_ARCHITECTURES=90-real (that of the GPU)
#   --emulated puts the emulated plugin in the real one's place, to try the kit itself on a machine without a GPU
#   MODEL      a model to time, without weights: kit/weights.py makes random ones. bench/peers/pytorch.py exports models
# On that machine: tar xzf OUT.tgz && protrain-kit/kit.sh PART, for each PART that kit.sh names. See docs/cuda.md.
set -eu
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd) build=$(cd "$1" && pwd) out=$2
shift 2
plugin=$build/libprotrain_cuda.so
if [ "${1:-}" = --emulated ]; then
  plugin=$build/tests/cuda/plugin/emulated/libprotrain_cuda.so
  shift
elif grep -Eq '^CMAKE_CUDA_FLAGS:.*-O[01]' "$build/CMakeCache.txt"; then
  echo "$build compiles kernels with -O0 or -O1 (CMAKE_CUDA_FLAGS), which keeps registers on the stack: no time would count"
  exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
kit=$tmp/protrain-kit
there=$kit/build
mkdir -p "$there/tools" "$there/tests" "$kit/lib" "$kit/models" "$kit/tests/fixtures" "$kit/bench/peers"

cp -L "$build/libprotrain.so.0" "$plugin" "$there/"
cp "$build/tools/protrain" "$there/tools/"
cp "$build/tests/test_conformance" "$there/tests/"
[ -f "$build/tests/gpu_ballast" ] && cp "$build/tests/gpu_ballast" "$there/tests/"
find "$there" -type f -exec strip --strip-unneeded {} +

# Copies the libraries that a bare machine may lack: all except those of the C and C++ compilers, of CUDA and of this
# build.
LD_LIBRARY_PATH=$build ldd "$there/libprotrain.so.0" "$there/tools/protrain" "$there/tests/test_conformance" \
    "$there/libprotrain_cuda.so" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  grep -Ev '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcu[^/]*|libnv[^/]*|libprotrain[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$kit/lib/"; done

cp "$root"/tests/gpu/kit/* "$kit/"
mkdir -p "$kit/tests/gpu" && cp "$root"/tests/gpu/check.* "$kit/tests/gpu/"
for family in gpt2 llama mistral opt; do cp "$root/tests/fixtures/$family"* "$kit/tests/fixtures/"; done
cp "$root"/tests/fixtures/*.npy "$kit/tests/fixtures/"
cp "$root"/bench/*.py "$kit/bench/"
cp "$root"/bench/peers/*.py "$kit/bench/peers/"
for model; do cp "$model" "$kit/models/"; done

tar czf "$out" -C "$tmp" protrain-kit
size=$(stat -c %s "$out")
echo "$out: $size bytes; $(ls "$kit/lib" | tr '\n' ' ')"
[ "$size" -lt $((64 << 20)) ] || { echo "more than 64 MiB are too many to carry"; exit 1; }
