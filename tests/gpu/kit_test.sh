#!/bin/sh
# Packs the kit for a bare machine with the emulated plugin, and runs it from a folder of its own. $1: the build.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd) build=$(cd "$1" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sh "$root/tests/gpu/bundle.sh" "$build" "$folder/kit.tgz" --emulated
mkdir "$folder/there" && tar xzf "$folder/kit.tgz" -C "$folder/there"
cd "$folder/there"
for part in correct speed budgets offload; do
  env -i PATH="$PATH" HOME="$folder" TMPDIR="$folder" OUT="$folder/out" \
    bash protrain-kit/kit.sh --small "$part" > "$folder/said" 2>&1 || { cat "$folder/said"; exit 1; }
  grep '^==' "$folder/said"
  grep -q 'nothing failed' "$folder/said" || { cat "$folder/said"; exit 1; }
done
# Checks that the kit has tested kernels through the plugin, replayed steps, and a plan that uses device and host
# memory.
grep -q '[1-9][0-9]* tests ran\|PASSED.*[1-9]' "$folder/out/conformance.txt" || { cat "$folder/out/conformance.txt"; exit 1; }
grep -q 'replayed.: True' "$folder/out/correct.log"
grep -q 'replayed True' "$folder/out/speed.log"
grep -q 'host [1-9]' "$folder/out/offload.log"
