#!/bin/sh
# Installs the packages that the build needs, from Debian's own archive (Debian 12 or 13), unless all are there.
# usage: install-dependencies.sh [test|developer|fuzz]    test: also for the tests of bindings and of installing
#                                                         developer: also for `make check` and `make format`
#                                                         fuzz: for the build and scripts/fuzz.sh, not for the tests
set -eu

packages="g++ make cmake ninja-build pkg-config protobuf-compiler libprotobuf-dev libdnnl-dev libfmt-dev
  nlohmann-json3-dev liburing-dev libxxhash-dev libcli11-dev libgtest-dev python3 python3-venv ca-certificates"
[ -z "${1:-}" ] || [ "$1" = fuzz ] || packages="$packages golang-go default-jdk-headless junit5 cargo rustc
  rust-clippy rustfmt swig bindgen meson abigail-tools lintian dpkg-dev debootstrap libonnx-testdata libbenchmark-dev
  libopenmpi-dev openmpi-bin libmpich-dev mpich libgloo-dev"
[ "${1:-}" != developer ] || packages="$packages clang-format git"
[ "${1:-}" != fuzz ] || packages="$packages clang libclang-rt-dev libomp-dev"

missing=
for package in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] ||
    missing="$missing $package"
done
[ -n "$missing" ] || exit 0

root=
if [ "$(id -u)" -ne 0 ]; then
  root=$(command -v sudo) || {
    echo "Run this as root: apt-get install$missing" >&2
    exit 1
  }
fi
$root apt-get update -q
# shellcheck disable=SC2086
$root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
