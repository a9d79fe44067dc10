#!/bin/sh
# Tests the forms of --input: whatever the type, the order and the file of an array, the losses must be the same bits.
. "$(dirname "$0")/expect.sh"

python3 "$(dirname "$0")/arrays.py" "$fixtures" || exit 1
vit=$fixtures/families/vit.dynamo23-folded.onnx
bits() { sed 's/.*"loss_bits":"\([0-9a-f]*\)".*/\1/' "$1"; }
# same NAME ARGS...: trains with these arguments; the losses must be those in NAME.
same() {
  expected=$1
  shift
  run train "$@" --seed 3 --metrics got.jsonl
  leaves_with 0
  quiet
  [ "$(bits got.jsonl)" = "$(bits "$expected")" ] || wrong "other losses than in $expected: $*"
}

run train "$model" --steps 12 --seed 3 --metrics tokens.jsonl --input input_ids="$fixtures/input_ids.npy" \
  --input labels="$fixtures/labels.npy"
leaves_with 0
pair() { echo "--input input_ids=input_ids.$1.npy --input labels=labels.$1.npy"; }
for form in i4 column-major; do
  same tokens.jsonl "$model" --steps 12 $(pair $form)
done
same tokens.jsonl "$model" --steps 12 --input input_ids=input_ids.u2.npy --input labels=labels.i4.npy
for form in samples samples.column-major; do
  same tokens.jsonl "$model" --steps 12 --batch 2 $(pair $form)
done
same tokens.jsonl "$model" --steps 12 --input folder
same tokens.jsonl "$model" --steps 12 --batch 2 --input tokens.safetensors
same tokens.jsonl "$model" --steps 12 --dim batch=2 \
  --input input_ids=tokens.safetensors --input labels=labels.samples.npy

prints ' tokens/s '
run train "$vit" --steps 4 --seed 3 --metrics images.jsonl --input pixel_values=pixels.npy --input labels=classes.npy \
  --report images.html
leaves_with 0
prints ' samples/s '
grep -q 'samples per second' images.html || wrong "the report counts tokens of images"
for form in u1 f8 f2 column-major; do
  same images.jsonl "$vit" --steps 4 --batch 2 --input pixel_values=pixels.$form.npy --input labels=classes.u1.npy
done
same images.jsonl "$vit" --steps 4 --batch 2 --input images.safetensors

# Reading 252 images takes long enough to be done ahead.
run train "$vit" --steps 4 --seed 3 --metrics many.jsonl --input pixel_values=many.npy --input labels=many-classes.npy
leaves_with 0
same many.jsonl "$vit" --steps 4 --batch 252 --input pixel_values=pixels.u1.npy --input labels=classes.u1.npy
same many.jsonl "$vit" --steps 4 --batch 252 --input images.safetensors

# Each sample comes once an epoch, also in a random order. A batch may take samples of two epochs.
for shuffle in "" "--shuffle 5"; do
  run train "$model" $(pair samples) --batch 1 --learning-rate 1e-30 --epochs 1 $shuffle --metrics "epoch$shuffle.jsonl"
  leaves_with 0
  [ "$(wc -l <"epoch$shuffle.jsonl")" -eq 20 ] || wrong "an epoch has 20 samples"
done
[ "$(bits epoch.jsonl | sort)" = "$(bits 'epoch--shuffle 5.jsonl' | sort)" ] || wrong "not every sample came once"
[ "$(bits epoch.jsonl)" != "$(bits 'epoch--shuffle 5.jsonl')" ] || wrong "the samples are not shuffled"
run train "$model" $(pair samples) --batch 3 --epochs 1 --metrics threes.jsonl
[ "$(wc -l <threes.jsonl)" -eq 7 ] || wrong "20 samples are 7 batches of 3"

# Evaluations may have another batch and another window. The 20 samples are 20 batches of 1, 4 of 5, or 2 of 7 and one
# of 6. A batch of 30 takes them all.
value() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$2"; } # KEY FILE
near() { awk -v a="$1" -v b="$2" 'BEGIN {d = a / b - 1; exit !(d < 1e-5 && d > -1e-5)}' || wrong "$1 is not near $2"; }
for batch in 1 5 7 30; do
  run train "$model" --input folder --steps 1 --metrics samples.jsonl --export trained.onnx --eval-batch $batch \
    --eval-input input_ids=input_ids.samples.npy --eval-input labels=labels.samples.npy
  leaves_with 0
  run eval trained.onnx $(pair samples) --batch $batch
  prints "the mean of $(((19 + batch) / batch)) batch"
  near "$(sed 's/^loss \([0-9.]*\),.*/\1/' out)" "$(value eval_loss samples.jsonl)"
done
prints 'the mean of 1 batch, the last of 20 samples'

# A model of batches of 2 leaves out the last of 9 samples, and takes no single one.
for rows in 9 1; do
  for name in input_ids labels; do
    { head -c 128 "$fixtures/$name.npy" | LC_ALL=C sed "s/(10, 2, 32)/($rows,     32)/" &&
      tail -c +129 "$fixtures/$name.npy" | head -c $((rows * 32 * 8)); } >$name.$rows.npy
  done
done
static=$fixtures/gpt2-static-opset18.onnx
run eval "$static" --input input_ids=input_ids.9.npy --input labels=labels.9.npy
leaves_with 0
complains '1 of 9 samples left out: 9 is no multiple of 2, and the session serves no batch of 1'
prints 'the mean of 4 batches; perplexity'
run train "$static" --steps 1 --input folder --eval-input input_ids=input_ids.9.npy --eval-input labels=labels.9.npy
leaves_with 0
complains 'evaluations: 1 of 9 samples left out'
refused 1 'a batch takes 2 samples, the data hold 1' eval "$static" \
  --input input_ids=input_ids.1.npy --input labels=labels.1.npy

iconv -f ISO-8859-1 -t UTF-16LE /usr/share/common-licenses/GPL-3 | head -c 4000 >tokens.bin
windows="--tokens tokens.bin --labels same --batch 2 --sequence 16 --steps 1"
run train "$model" $windows --eval-tokens tokens.bin --eval-batch 1 --eval-sequence 32 --metrics windows.jsonl \
  --export trained.onnx
leaves_with 0
run eval trained.onnx --tokens tokens.bin --labels same --batch 1 --sequence 32
near "$(sed 's/^loss \([0-9.]*\),.*/\1/' out)" "$(value eval_loss windows.jsonl)"

# Beside 20 windows of tokens, an array has a sample for each window, or a batch for each two, or one for all.
head -c 1280 /dev/zero >twenty.bin
masked() { # STATUS MASK ARGS...
  expected=$1 mask=$2
  shift 2
  run train "$fixtures/families/gpt-neox.dynamo23.onnx" --input "attention_mask=mask.$mask.npy" --labels same --batch 2 \
    --sequence 32 --steps 1 "$@"
  leaves_with "$expected"
}
masked 0 samples --tokens twenty.bin --shuffle 1
masked 0 batches --tokens twenty.bin
masked 0 one --tokens twenty.bin=1 --tokens twenty.bin=2 --shuffle 1
for mask in nineteen nine; do
  masked 1 $mask --tokens twenty.bin
  complains "mask.$mask.npy has .*, and --tokens has 20 windows, 2 in a batch; give a sample for each window, or 1 batch"
done
masked 2 batches --tokens twenty.bin --shuffle 1
complains 'the rows of mask.batches.npy as whole batches, so they would belong to other windows'
masked 2 samples --tokens twenty.bin=1 --tokens twenty.bin=2
complains '--tokens with weights takes its files in turns, so the rows of mask.samples.npy would belong to other windows'

# How long a step waits for data is measured.
[ "$(grep -c '"data_seconds":[0-9]' tokens.jsonl)" -eq 12 ] || wrong "a step does not say how long it waited for data"
run train "$model" --input folder --steps 2 --report report.html
grep -q 'waiting for data' report.html || wrong "the report does not say how long a step waited for data"
run train "$model" --input folder --steps 2 --report report.json
grep -q '"data_seconds": [0-9]' report.json || wrong "the report does not say how long a step waited for data"

# A NaN is shown without its sign, which says nothing.
run train "$fixtures/classifier.onnx" --loss mse --input tokens=ids.npy --input labels=nan.npy --batch 2 --steps 1 \
  --on-nonfinite skip
leaves_with 0
prints ' loss nan '

fails() { # SENTENCE ARGS...
  sentence=$1
  shift
  refused 1 "$sentence" train "$model" --steps 1 "$@"
}
refused 2 'needs --batch for this model' train "$model" --steps 1 $(pair samples)
refused 2 'a directory or a safetensors file' train "$model" --steps 1 --input tokens.bin
refused 2 'is given twice' train "$model" --steps 1 --input folder --input labels=labels.i4.npy
refused 2 'need --eval-input' train "$model" --steps 1 --input folder --eval-batch 2
fails 'holds float32, and input input_ids takes int64' --batch 2 \
  --input input_ids=floats.npy --input labels=labels.samples.npy
fails 'counts samples, and that of' --batch 1 --input input_ids=input_ids.samples.npy --input labels=twenty.npy
fails 'eighteen.npy has 18 samples, and input_ids.samples.npy has 20; all arrays need as many$' --batch 2 \
  --input input_ids=input_ids.samples.npy --input labels=labels.eighteen.npy
fails 'labels.narrow.npy of shape (20, 16), read as 20 samples of (16): sequence is 16 here and 32 elsewhere; ' \
  --batch 2 --input input_ids=input_ids.samples.npy --input labels=labels.narrow.npy
fails 'classes.u1.npy of shape (6), read as 6 batches of (): a batch has 0 axes, and the input 2; '\
'an array for labels has the shape (N, sequence) if it holds N samples, or (N, batch, sequence) if it holds N batches' \
  --input labels=classes.u1.npy
LC_ALL=C sed '1s/<i8/>i8/' "$fixtures/input_ids.npy" >big.npy
fails 'big.npy: its elements are big-endian; save the array as little-endian' --input input_ids=big.npy
fails "elements of type '|O' are not known; save the array as numbers" --input input_ids=objects.npy
refused 2 '^protrain: --dim batch=4 does not fit the data, whose batch is 2' train "$model" $windows --dim batch=4
static=$fixtures/gpt2-static-opset18.onnx
refused 2 "the model's batch is fixed at 2, and --batch is 8; leave --batch out, or " train "$static" --batch 8 \
  --tokens tokens.bin --steps 1 --sequence 32
refused 1 'axis 1 of a batch is 16, and the model fixes it at 32; ' train "$static" --steps 1 \
  --input input_ids=labels.narrow.npy
fails 'no file called after an input' --input .
fails 'no tensor called after an input; its tensors are other' --input other.safetensors
fails 'no tensor labels' --batch 2 --input input_ids=input_ids.samples.npy --input labels=other.safetensors
fails 'do not fit its shape' --batch 2 --input outside.safetensors
head -c 20 tokens.safetensors >cut.safetensors
fails 'not a safetensors file' --input cut.safetensors
run train "$model" --steps 1 --batch 2 --input input_ids=large.npy --input labels=labels.samples.npy
leaves_with 1
complains 'large.npy: 9223372036854775808 is no int64'
