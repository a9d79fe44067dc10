#!/bin/sh
# Makes the Debian packages of a build and checks them with lintian.
# usage: package.sh BUILD [FOLDER]    leaves the packages in FOLDER; without it they are deleted
set -eu
build=$1
command -v dpkg-shlibdeps >/dev/null && command -v lintian >/dev/null || {
  echo "package: not tried, there is no dpkg-shlibdeps or lintian here (Debian's dpkg-dev, lintian)"
  exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$build" && cpack -B "$work" >"$work/log" 2>&1) || {
  cat "$work/log"
  exit 1
}
ls "$work"/libprotrain0_*.deb "$work"/libprotrain-dev_*.deb "$work"/protrain_*.deb >/dev/null
for plugin in openmpi mpich gloo; do
  [ ! -f "$build/libprotrain_$plugin.so" ] || ls "$work"/libprotrain-${plugin}_*.deb >/dev/null
done
lintian --allow-root --no-cfg --fail-on error "$work"/*.deb
[ -z "${2:-}" ] || cp "$work"/*.deb "$2"
