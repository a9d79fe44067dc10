#!/bin/sh
# Fuzzes everything that reads files, and the C interface. Builds the targets of tests/fuzz with clang and libFuzzer,
# runs one after the other, and says what each found and how to reproduce it. What it learns stays in build/fuzz/corpus.
# usage: fuzz.sh [SECONDS] [TARGET...]    SECONDS for each target; by default a minute for each of all targets
set -eu
cd "$(dirname "$0")/.."
seconds=60
case "${1:-}" in
  '' | *[!0-9]*) ;;
  *) seconds=$1 && shift ;;
esac
[ $# -gt 0 ] || set -- npy safetensors tokens checkpoint plan hardware ort_checkpoint onnx graph calls

scripts/install-dependencies.sh fuzz
cmake --preset fuzz >/dev/null
for target; do echo "fuzz_$target"; done | xargs cmake --build build/fuzz --target

root=$PWD/build/fuzz
mkdir -p "$root/found"
export XDG_CACHE_HOME="$root/cache" UBSAN_OPTIONS=print_stacktrace=1
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm  # files are written by the thousand
found=0
for target; do
  mkdir -p "$root/corpus/$target"
  dictionary=tests/fuzz/$target.dict
  [ -f "$dictionary" ] && dictionary=-dict=$dictionary || dictionary=
  # -timeout counts wall-clock seconds, and the machine may be busy. Half a minute for one input is too long anywhere.
  if "$root/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -max_len=16384 \
    -print_final_stats=1 ${dictionary:+"$dictionary"} -artifact_prefix="$root/found/$target-" \
    "$root/corpus/$target" "tests/fuzz/corpus/$target" >"$root/$target.log" 2>&1; then
    verdict="nothing"
  else
    found=1
    file=$(sed -n 's/.*Test unit written to //p' "$root/$target.log" | tail -n 1)
    verdict="$(grep -m 1 -E '^found:|runtime error:|^SUMMARY|^==.*ERROR' "$root/$target.log" || echo a crash)
  reproduce it: build/fuzz/tests/fuzz/fuzz_$target ${file#"$PWD/"}"
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$root/$target.log" | tail -n 1)
  echo "$target: ${runs:-?} runs, found $verdict"
done
exit $found
