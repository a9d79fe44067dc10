#!/bin/sh
# Adds a few inputs that scripts/fuzz.sh found to corpus/TARGET, as reached-N. It chooses those that together reach most
# of the code that committed inputs do not reach. Removes the former reached-*. usage: keep.sh TARGET [COUNT]
set -eu
cd "$(dirname "$0")/../.."
target=$1 count=${2:-16} corpus=tests/fuzz/corpus/$1
export XDG_CACHE_HOME="$PWD/build/fuzz/cache"
chosen=$(mktemp -d)
trap 'rm -rf "$chosen"' EXIT
cp "$corpus"/* "$chosen"
rm -f "$chosen"/reached-* "$corpus"/reached-*
# libFuzzer's merge chooses greedily, and writes the input that adds most code first. A file's name is its hash.
build/fuzz/tests/fuzz/fuzz_"$target" -set_cover_merge=1 -use_counters=0 -max_len=2000 -timeout=30 \
  "$chosen" "build/fuzz/corpus/$target" 2>"build/fuzz/$target-merge.log"
n=0
for input in $(ls -tr "$chosen" | grep -E '^[0-9a-f]{40}$' | head -n "$count"); do
  cp "$chosen/$input" "$corpus/reached-$n"
  n=$((n + 1))
done
echo "$target: $n inputs, $(cat "$corpus"/reached-* | wc -c) bytes"
