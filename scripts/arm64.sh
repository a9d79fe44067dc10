#!/bin/sh
# Builds for arm64 with Debian's cross compiler and runs the unit tests under qemu-user. That takes an hour or so on two
# cores. It needs no root: the libraries are Debian's own packages, unpacked into a folder.
# usage: arm64.sh [more arguments for ctest]
set -eu
cd "$(dirname "$0")/.."
build=$PWD/build/arm64
sysroot=$PWD/build/arm64-sysroot

# Makes apt believe that this is an empty arm64 machine, so that it finds the packages and everything they depend on.
make_sysroot() {
  apt=$sysroot.apt
  rm -rf "$apt" "$sysroot"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/parts" "$sysroot"
  : >"$apt/status"
  # The packages come from the archive that this machine uses for its own.
  debian=$(. /etc/os-release && echo "$VERSION_CODENAME")
  archive=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $debian" | head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $debian main" >"$apt/sources"
  cat >"$apt/conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Etc::sourcelist "$apt/sources";
Dir::Etc::sourceparts "$apt/parts";
Dir::Etc::preferencesparts "$apt/parts";
CONF
  APT_CONFIG=$apt/conf apt-get update -q
  APT_CONFIG=$apt/conf apt-get install -q -y --download-only --no-install-recommends libprotobuf-dev libdnnl-dev \
    libgomp1 libfmt-dev nlohmann-json3-dev liburing-dev libxxhash-dev libcli11-dev libgtest-dev
  for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  rm -rf "$apt"
  touch "$sysroot/complete"
}

for program in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v $program >/dev/null || {
    echo "missing $program: apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2
    exit 1
  }
done
[ -e "$sysroot/complete" ] || make_sysroot

# The plugin for CUDA is left out: nvcc compiles for this machine, not for arm64.
cmake -S . -B "$build" -G Ninja --toolchain cmake/toolchains/arm64.cmake -DPROTRAIN_SYSROOT="$sysroot" \
  -DPROTRAIN_CUDA=OFF
cmake --build "$build"
# Tests that run programs themselves (the command, the samples) are left out, because these would need the emulator too.
# The room measure times kernels, which means nothing here. The tests left out by name ask the system for limits that
# qemu does not pass on.
units='arith|base|graph|ops|onnx_import|passes|grad|backend|profile|plan|program|run|comm|state|draft|session|api'
ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" --tests-regex "^($units)/" --exclude-regex \
  'api/symbols|IsAlignedZeroedAndExact|RespectsTheLimitOnAddresses|RefusedThreadIsAnErrorValue|WhereOpenMpBindsThreads' "$@"
