#!/bin/sh
# Tests protrain eval: the mean loss of data, and outputs of a model in files, with and without labels.
. "$(dirname "$0")/expect.sh"

run eval "$model" --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
leaves_with 0
quiet
prints '^loss [0-9.]*, the mean of 10 batches; perplexity [0-9.]*$'
sed 's/^loss \([0-9.]*\),.* perplexity \(.*\)/\1 \2/' out |
  awk '{d = exp($1) / $2 - 1; exit !(d < 1e-4 && d > -1e-4)}' || wrong "the perplexity is no exp(loss)"
mean=$(sed 's/^loss \([0-9.]*\),.*/\1/' out)
run train "$model" --steps 10 --learning-rate 1e-30 --input input_ids="$fixtures/input_ids.npy" \
  --input labels="$fixtures/labels.npy" --metrics metrics.jsonl
sed 's/.*"loss":\([0-9.]*\),.*/\1/' metrics.jsonl |
  awk -v mean="$mean" '{sum += $1} END {d = sum / NR - mean; exit !(d < 1e-4 && d > -1e-4)}' ||
  wrong "the loss of eval is $mean"

# A model with nothing to train.
run eval "$model" --frozen '*' --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
leaves_with 0
quiet
prints "^loss $mean, the mean of 10 batches; perplexity"
refused 1 'the loss depends on no trained parameter' train "$model" --frozen '*' --steps 1 \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
run check "$model" --frozen '*' --mode eval
leaves_with 0
prints 'can be evaluated'
refused 2 'leave it out, or run protrain eval' train "$model" --mode eval --steps 1 \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"

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

# A model without a loss needs none, also if all its inputs have data.
run eval "$classes" --input tokens=tokens.npy --output logits=logits.npy --output choice=chosen.npy
leaves_with 0
quiet
prints 'logits.npy: logits of 3 batches'
cmp -s logits.npy whole.npy && cmp -s chosen.npy choice.npy || wrong "other outputs without --loss"
if grep -q loss out; then wrong "the model has no loss"; fi
refused 1 'no scalar float32 output' eval "$classes" --input tokens=tokens.npy
run eval "$classes" --loss cross_entropy --input tokens=tokens.npy --output logits=logits.npy --batches 1
leaves_with 0
tail -c +129 logits.npy | cmp -s -n $((3 * 5 * 4)) - whole.npy 0 128 || wrong "the first batch has other logits"

refused 1 "--output log\*=logits.npy: the model has no output of this name" eval "$classes" --loss cross_entropy \
  --input tokens=tokens.npy --output 'log*=logits.npy'

# The same tokens as 9 samples: the files have a row for each, also if the last batch is smaller.
LC_ALL=C sed '1s/(3, 3, 6)/(9,    6)/' tokens.npy >samples.npy
{
  printf "\\223NUMPY\\1\\0\\166\\0%-117s\\n" "{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }"
  printf '\0\1\2\3\4\0\1\2\3'
} >classes.npy
for batch in 3 4 9 20; do
  run eval "$classes" --loss cross_entropy --input tokens=samples.npy --input labels=classes.npy --batch $batch \
    --output logits=logits.npy --output choice=chosen.npy
  leaves_with 0
  quiet
  sed -n 's/^loss \([0-9.]*\),.*/\1/p' out >>means
  prints 'logits.npy: logits of 9 samples'
  head -c 128 logits.npy | grep -aq "'shape': (9, 5,)" || wrong "the header of logits of samples"
  [ "$(wc -c <logits.npy)" -eq $((128 + 9 * 5 * 4)) ] || wrong "logits.npy has another size"
  tail -c +129 chosen.npy | cmp -s - choice.npy 0 128 || wrong "another choice in batches of $batch"
done
awk 'NR == 1 {first = $1} {d = $1 / first - 1; if (d > 1e-5 || d < -1e-5) exit 1} END {if (NR != 4) exit 1}' means ||
  wrong "each sample counts alike: $(cat means)"
run eval "$classes" --loss cross_entropy --input tokens=samples.npy --batch 4 --batches 2 --output logits=logits.npy
prints 'logits.npy: logits of 8 samples'

# Train takes the rows that eval writes as samples: here for 8 answers of 12 tokens and the loss dpo.
{
  head -c 128 tokens.npy | LC_ALL=C sed '1s/(3, 3, 6)/(8,   12)/'
  { tail -c +129 tokens.npy && tail -c +129 tokens.npy; } | head -c $((8 * 12 * 8))
} >answers.npy
answers="--loss dpo --loss-shift 1 --batch 4 --input ids=answers.npy --input labels=answers.npy"
# shellcheck disable=SC2086
run eval "$fixtures/objectives/tokens.onnx" $answers --output log_probabilities=reference.npy
leaves_with 0
prints 'reference.npy: log_probabilities of 8 samples'
# shellcheck disable=SC2086
run train "$fixtures/objectives/tokens.onnx" $answers --input reference=reference.npy --steps 1
leaves_with 0
prints 'loss 0.6931' # the model is still its own reference
# Pairs stay together: a random order of samples would part them, and so would a batch that begins the next pass.
# shellcheck disable=SC2086
refused 2 'would part samples that the loss dpo compares' train "$fixtures/objectives/tokens.onnx" $answers \
  --input reference=reference.npy --steps 1 --shuffle 1
# shellcheck disable=SC2086
refused 1 'the arrays have 8 samples, no multiple of the 6 of a batch' train "$fixtures/objectives/tokens.onnx" \
  $(echo $answers | sed 's/batch 4/batch 6/') --input reference=reference.npy --steps 1
# A batch of 2 pairs and a half cannot be the last.
{ head -c 128 answers.npy | LC_ALL=C sed '1s/(8, /(7, /' && tail -c +129 answers.npy | head -c $((7 * 12 * 8)); } >odd.npy
run eval "$fixtures/objectives/tokens.onnx" --loss dpo --loss-shift 1 --batch 4 --input ids=odd.npy --input labels=odd.npy \
  --output log_probabilities=reference.npy
leaves_with 0
complains '3 of 7 samples left out: 7 is no multiple of 4, and the session serves no batch of 3'
prints 'log_probabilities of 4 samples'

# Axis 0 of `steps` counts 12 moments. In batches of as many samples it looks like samples, but not in the last one.
{
  printf "\\223NUMPY\\1\\0\\166\\0%-117s\\n" "{'descr': '<f4', 'fortran_order': False, 'shape': (20, 24, 5), }"
  head -c 9600 /dev/zero
} >frames.npy
refused 2 'output steps has no row for each sample, .* give a --batch that divides 20' eval \
  "$fixtures/objectives/speech.onnx" --loss ctc --loss-label-length 5 --input x=frames.npy --batch 12 --output steps=steps.npy
[ ! -e steps.npy ] || wrong "moments were written as samples"

refused 2 'give each with --input' eval "$classes" --loss cross_entropy --output logits=logits.npy
refused 2 'no data for labels: give --input labels=' eval "$classes" --loss cross_entropy --input tokens=tokens.npy
refused 1 "no output of the model matches 'logit'" eval "$classes" --loss cross_entropy --input tokens=tokens.npy \
  --output logit=logits.npy
refused 2 "wants NAME=FILE.npy, not 'logits'" eval "$classes" --loss cross_entropy --input tokens=tokens.npy \
  --output logits
refused 1 'No such file or directory' eval "$classes" --loss cross_entropy --input tokens=tokens.npy \
  --output logits=absent/logits.npy
refused 1 'tokens.npy: --output logits would replace what this run reads as --input' eval "$classes" \
  --loss cross_entropy --input tokens=tokens.npy --output logits=tokens.npy
refused 1 'both --output choice and --output logits would write it' eval "$classes" --loss cross_entropy \
  --input tokens=tokens.npy --output logits=same.npy --output choice=same.npy

# A model without labels takes windows of tokens for its outputs: 32 ids of 16 bits.
i=0
while [ $i -lt 32 ]; do printf "\\$(printf %03o $((i % 40)))\\0" && i=$((i + 1)); done >ids.bin
run eval "$fixtures/control/gpt2.onnx" --past none --constant attention_mask=1 --constant position_ids=0,1,2,3,4,5,6,7 \
  --dim batch_size=2 --dim sequence_length=8 --tokens ids.bin --output logits=logits.npy
leaves_with 0
prints 'logits.npy: logits of 4 windows'

# A checkpoint of another optimizer is evaluated without a word about it.
data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
run train "$model" $data --steps 2 --optimizer sgd --save sgd --export sgd.onnx
leaves_with 0
run eval sgd.onnx $data
mv out expected
run eval "$model" $data --resume sgd
leaves_with 0
cmp -s out expected || wrong "expected $(cat expected)"

# Ctrl-C leaves the file of an earlier run as it was, and no part of a new one.
cp logits.npy earlier.npy
ran='protrain eval, interrupted'
is_begun() { ls .logits.npy-* >/dev/null 2>&1; }
env --default-signal=INT "$command" eval "$classes" --loss cross_entropy --input tokens=tokens.npy --batches 100000000 \
  --output logits=logits.npy >out 2>err &
child=$!
interrupt_once is_begun
leaves_with 130
prints 'stopped after [0-9]* of 100000000 batches'
cmp logits.npy earlier.npy || wrong "the file of an earlier run was replaced"
if is_begun; then wrong "a part of the array stays"; fi

# A loss that nobody gets is an error.
if [ -c /dev/full ]; then
  "$command" eval "$model" --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" \
    >/dev/full 2>err && wrong "a full disk has taken the loss"
  complains 'standard output could not be written'
fi

# A path may contain "=".
mkdir model=gpt2
run eval "$classes" --loss cross_entropy --input tokens=tokens.npy --output logits=model=gpt2/logits.npy
leaves_with 0
[ -s model=gpt2/logits.npy ] || wrong "there are no logits"
