#!/bin/sh
# What the command refuses, with which status and in which words.
. "$(dirname "$0")/expect.sh"

data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
train() { # STATUS SENTENCE ARGS...
  expected=$1 sentence=$2
  shift 2
  # shellcheck disable=SC2086
  refused "$expected" "$sentence" train "$model" --steps 2 $data "$@"
}

# Known, but not available yet: refused by name, never ignored.
train 2 'trace step is not available yet' --trace step
for name in bench; do
  refused 2 "$name is not available yet" $name "$model"
done

# Wrong command lines.
refused 2 'subcommand'
refused 2 'steps' train "$model"
refused 2 'MODEL' train --steps 1
train 2 'no option --nonsense' --nonsense 1
refused 2 'no option --step;' train "$model" --step 3
refused 2 'no option --jsn;' check --jsn=1
refused 2 'not expected: two.onnx' check "$model" two.onnx
train 2 "did you mean 'learning_rate'" --set learning_rat=1
train 2 'key=value' --set seed
train 2 'learning_rate' --learning-rate -1
train 2 'not a whole number' --steps 0
train 2 'needs --save DIR' --save-every 1
train 2 'no input ids' --input "ids=$fixtures/labels.npy"
train 2 'twice' --input "labels=$fixtures/labels.npy"
refused 2 "the model's inputs are input_ids, labels" train "$model" --steps 1
refused 2 'needs --batch' train "$model" --steps 1 --tokens "$model"

# Errors.
train 1 'CUDA' --device cuda:4096
train 1 'fp16 is computed on the cpu alone' --device cuda:0 --precision fp16
refused 1 'CUDA' check "$model" --device cuda:4096
train 1 'it must match at least two' --tie 'transformer.wte.weight|nothing'
refused 1 'no-such.onnx' train no-such.onnx --steps 1
refused 1 'no-such.npy' train "$model" --steps 1 --input input_ids=no-such.npy
refused 1 'not a .npy file' train "$model" --steps 1 --input "input_ids=$model"
refused 1 'regular file' train "$model" --steps 1 --input input_ids=/dev/zero
head -c 200 "$fixtures/labels.npy" >short.npy
refused 1 'do not fit its shape' train "$model" --steps 1 --input input_ids=short.npy
printf abc >odd.bin
refused 1 'uint16' train "$model" --steps 1 --tokens odd.bin --batch 1 --sequence 8
printf abcd >few.bin
refused 1 'too few' train "$model" --steps 1 --tokens few.bin --batch 1 --sequence 8
train 1 'No such file or directory' --metrics no/such/folder.jsonl
train 1 'no/such/folder' --resume no/such/folder
train 1 'no complete checkpoint' --resume .
train 1 "no output logits; the model.s outputs are loss" --loss cross_entropy --loss-output logits
train 1 'no output of floats' --loss mse
train 1 'loss is not set' --loss-shift 1
train 1 'smallest' --memory 64KiB
touch plain
train 1 'plain/.: Not a directory' --save plain
train 1 'No such file or directory' --save no/such/folder
train 1 'No such file or directory' --export no/such/out.onnx
train 1 'No such file or directory' --report no/such/out.html
printf 'kept\n' >kept.jsonl
train 1 'no-such-checkpoint' --metrics kept.jsonl --resume no-such-checkpoint
grep -q kept kept.jsonl
