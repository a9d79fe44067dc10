#!/bin/sh
# Builds and tests this tree in a root that has another release of Debian, such as trixie (13). That takes an hour or so
# on two cores. The root is build/debian-RELEASE and keeps the packages and the build for the next time.
# usage: debian.sh RELEASE [COMMAND...]    as root, with debootstrap; COMMAND runs in the tree, scripts/test.sh by default
set -eu
cd "$(dirname "$0")/.."
release=$1
shift
[ $# -gt 0 ] || set -- scripts/test.sh
root=$PWD/build/debian-$release

if [ ! -e "$root/complete" ]; then
  rm -rf "$root"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" | head -n 1)
  script=/usr/share/debootstrap/scripts/$release
  [ -e "$script" ] || script=${script%/*}/sid # for releases that are newer than this debootstrap
  debootstrap --variant=minbase "$release" "$root" "$mirror" "$script"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  touch "$root/complete"
fi

# Copies what git tracks. The copies keep their times, so that only what changed is built again.
mkdir -p "$root/tree"
find "$root/tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory="$root/tree"

# The mounts end with the command, because it has a list of mounts of its own.
# shellcheck disable=SC2016
exec unshare --mount sh -c '
  root=$1
  shift
  mount -t proc proc "$root/proc"
  for folder in sys dev; do mount --rbind "/$folder" "$root/$folder"; done
  exec chroot "$root" sh -c '\''cd /tree && exec "$@"'\'' sh "$@"' sh "$root" "$@"
