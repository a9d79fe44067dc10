#!/bin/sh
# Builds for arm64 with Debian's cross compiler and runs the unit tests under qemu-user. Needs no root: the libraries
# are Debian's own packages, unpacked into a folder.
# usage: arm64.sh [more arguments for ctest]
set -eu
cd "$(dirname "$0")/.."
build=$PWD/build/arm64
PROTRAIN_SYSROOT=${PROTRAIN_SYSROOT:-$PWD/build/arm64-sysroot}
export PROTRAIN_SYSROOT

# apt as if this were an empty machine of that kind: it finds the packages and all that they stand on.
make_sysroot() {
  apt=$PROTRAIN_SYSROOT.apt
  rm -rf "$apt" "$PROTRAIN_SYSROOT"
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/parts" "$PROTRAIN_SYSROOT"
  : >"$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "${PROTRAIN_MIRROR:-http://deb.debian.org/debian} bookworm main" >"$apt/sources"
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
  for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$PROTRAIN_SYSROOT"; done
  rm -rf "$apt"
  touch "$PROTRAIN_SYSROOT/complete"
}

for program in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v $program >/dev/null || {
    echo "missing $program: apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2
    exit 1
  }
done
[ -e "$PROTRAIN_SYSROOT/complete" ] || make_sysroot

cmake -S . -B "$build" -G Ninja --toolchain cmake/toolchains/arm64.cmake
cmake --build "$build"
# What is run by another program than ctest would need the emulator there too, so that only unit tests are left.
ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" \
  --tests-regex '^(arith|base|graph|ops|onnx_import|passes|grad|backend|profile|plan|program|run|measure|state|session|api)/' \
  --exclude-regex '^api/symbols' "$@"
