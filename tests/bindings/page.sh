#!/bin/sh
# Runs a page of docs/ as it is written: every block that is marked sh, one after the other, in a folder that looks like
# the repository's root, with a home of its own. The first block installs packages and builds, which has been done.
# usage: page.sh SOURCE BUILD PAGE
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
page=$source/docs/$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/build" "$work/home"
for entry in "$source"/*; do
  test "$(basename "$entry")" = build || cp -r "$entry" "$work/root"
done
ln -s "$build" "$work/root/build/release"

awk '/^```/ {inside = !inside; sh = inside && $0 == "```sh"; blocks += sh; next} sh && blocks > 1' "$page" >"$work/page"
test -s "$work/page"
export HOME="$work/home" XDG_CACHE_HOME="$build/cache"
cd "$work/root"
sh -eu "$work/page"
