#!/bin/sh
# Tests protrain eval: the mean loss of data, and outputs of a model in files, with and without labels.
. "$(dirname "$0")/expect.sh"

run eval "$model" --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
leaves_with 0
quiet
prints '^loss [0-9.]*, the mean of 10 batches$'
mean=$(sed 's/^loss \([0-9.]*\),.*/\1/' out)
run train "$model" --steps 10 --learning-rate 1e-30 --input input_ids="$fixtures/input_ids.npy" \
  --input labels="$fixtures/labels.npy" --metrics metrics.jsonl
sed 's/.*"loss":\([0-9.]*\),.*/\1/' metrics.jsonl |
  awk -v mean="$mean" '{sum += $1} END {d = sum / NR - mean; exit !(d < 1e-4 && d > -1e-4)}' ||
  wrong "the loss of eval is $mean"

# Outputs before the loss need no labels. Three batches of tokens (3, 6) as int64.
classes=$fixtures/outputs/classes.onnx
{
  printf "\\223NUMPY\\1\\0\\166\\0%-117s\\n" "{'descr': '<i8', 'fortran_order': False, 'shape': (3, 3, 6), }"
  i=0
  while [ $i -lt 54 ]; do printf "\\$(printf %03o $((i % 20)))\\0\\0\\0\\0\\0\\0\\0" && i=$((i + 1)); done
} >tokens.npy
run eval "$classes" --loss cross_entropy --input tokens=tokens.npy --output logits=logits.npy --output choice=choice.npy
leaves_with 0
quiet
prints 'logits.npy: logits of 3 batches'
head -c 128 logits.npy | grep -aq "'descr': '<f4', 'fortran_order': False, 'shape': (3, 3, 5,)" || wrong "logits' header"
head -c 128 choice.npy | grep -aq "'descr': '<i8'.*'shape': (3, 3,)" || wrong "the header of choice"
[ "$(wc -c <logits.npy)" -eq $((128 + 3 * 3 * 5 * 4)) ] || wrong "logits.npy has another size"
[ "$(wc -c <choice.npy)" -eq $((128 + 3 * 3 * 8)) ] || wrong "choice.npy has another size"
if grep -q loss out; then wrong "there are no labels to compute a loss with"; fi
cp logits.npy whole.npy
run eval "$classes" --loss cross_entropy --input tokens=tokens.npy --output logits=logits.npy --batches 1
leaves_with 0
tail -c +129 logits.npy | cmp -s -n $((3 * 5 * 4)) - whole.npy 0 128 || wrong "the first batch has other logits"

refused 2 'give each with --input' eval "$classes" --loss cross_entropy --output logits=logits.npy
refused 2 'no data for labels: give --input labels=' eval "$classes" --loss cross_entropy --input tokens=tokens.npy
refused 1 "no output of the model matches 'logit'" eval "$classes" --loss cross_entropy --input tokens=tokens.npy \
  --output logit=logits.npy
refused 2 "wants NAME=FILE.npy, not 'logits'" eval "$classes" --loss cross_entropy --input tokens=tokens.npy \
  --output logits
refused 1 'No such file or directory' eval "$classes" --loss cross_entropy --input tokens=tokens.npy \
  --output logits=absent/logits.npy
