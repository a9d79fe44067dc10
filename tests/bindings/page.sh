#!/bin/sh
# Runs the blocks marked sh of a page of docs/ in order, with a fresh home folder, in a copy of the repository. Leaves
# out the first block, which installs packages and builds: both have been done.
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
