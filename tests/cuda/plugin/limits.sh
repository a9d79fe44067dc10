#!/bin/sh
# A GPU may refuse a precision, the capture of a step, or memory for a kernel's first launch. The session must report an
# error. If only the capture is refused, it must warn and go on.
# $1: the command; $2: the folder of the emulated plugin; $3: tests/fixtures.
set -eu
protrain=$1 fixtures=$3
export LD_LIBRARY_PATH="$2"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME="$folder/cache"

train() {
  "$protrain" train "$fixtures/gpt2-dynamic-opset18.onnx" --device cuda:0 --steps 3 \
    --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" "$@" > "$folder/said" 2>&1
}
number() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$folder/report.json" | head -1; }
is() { [ "$2" = "$3" ] || { echo "$1: $2, not $3"; cat "$folder/said"; exit 1; }; }

train --precision fp16 && { echo "fp16 was computed"; exit 1; }
is "the precisions" "$(grep -c 'fp16 is not computed on cuda:0, which computes in fp32, bf16' "$folder/said")" 1

PROTRAIN_EMULATED_NO_CAPTURES=1 train --report "$folder/report.json"
is "warnings" "$(grep -c 'could not record the step' "$folder/said")" 1
is "replayed" "$(grep -c '"replayed": false' "$folder/report.json")" 1
is "the reason" "$(grep -c '"not_recorded": "captures are refused"' "$folder/report.json")" 1

train --report "$folder/report.json"
is "warnings" "$(grep -v 'other processes used the cores' "$folder/said" | grep -c warning || true)" 0
is "replayed" "$(grep -c '"replayed": true' "$folder/report.json")" 1
before=$(number device_free_before_bytes) after=$(number device_free_bytes) arena=$(number device_peak_bytes)
[ "$((before - after))" -gt "$arena" ] || { echo "kernels took nothing beside the arena's $arena bytes"; exit 1; }

# The kernels have been measured by now. There is memory for the arena and for the numbers of a step, but not for all
# kernels, which are loaded after it. However many kernels fit, the session must fail when it is created, not in a step.
for left in 0 200000 1000000; do
  PROTRAIN_EMULATED_MEMORY=$((arena + 65536 + left)) train --device-memory "$arena" --host-memory 1GiB &&
    { echo "a step ran with $left bytes beside the arena"; exit 1; }
  is "who failed with $left bytes left" "$(grep -c 'at instruction\|step' "$folder/said" || true)" 0
  is "the reason with $left bytes left" "$(grep -c 'out of memory' "$folder/said")" 1
done
PROTRAIN_EMULATED_MEMORY=$((before - after + 65536)) train --device-memory "$arena" --host-memory 1GiB
