#!/bin/sh
# Tests what the command refuses: exit status and message.
. "$(dirname "$0")/expect.sh"

data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
train() { # STATUS SENTENCE ARGS...
  expected=$1 sentence=$2
  shift 2
  # shellcheck disable=SC2086
  refused "$expected" "$sentence" train "$model" --steps 2 $data "$@"
}

# Wrong command lines.
refused 2 '^protrain: name a command: train, eval, '
refused 2 "^protrain: there is no command 'trian'; did you mean train?" trian "$model"
refused 2 "^protrain: there is no command 'x'; the commands are train, eval, " x
refused 2 "^protrain: there is no command 'trian'; did you mean train?" trian "$model" --threads 1
refused 2 'steps' train "$model"
refused 2 '^protrain: MODEL is required' train --steps 1
train 2 'no option --nonsense' --nonsense 1
refused 2 'no option --step;' train "$model" --step 3
refused 2 'no option --jsn;' check --jsn=1
train 2 'no option --learnig-rate; did you mean --learning-rate?' --learnig-rate 1
train 2 'no option --learning_rate; did you mean --learning-rate?' --learning_rate=1
train 2 'no option --warmup; did you mean --warmup-steps?' --warmup 3
train 2 'no option --seq; did you mean --sequence?' --seq 3
train 2 'no option --batch-size; did you mean --batch?' --batch-size 8
train 2 'no option --lr; did you mean --learning-rate?' --lr 0.1
refused 2 'no option --batch of plan; use --dim batch=N' plan "$model" --batch 8
refused 2 '^protrain: --batch belongs behind the command: protrain train ... --batch' --batch 8 train "$model" --steps 1
train 2 '^protrain: --batch is given more than once' --batch 8 --batch 9
train 2 '^protrain: --shuffle needs a value' --shuffle
train 2 "^protrain: --shuffle: 'abc' is not a whole number from 0" --shuffle abc
train 2 "^protrain: --shuffle: '-1' is not a whole number from 0" --shuffle -1
train 2 "^protrain: --separator: '-1' is not a whole number from 0" --separator -1
refused 2 "^protrain: 'two.onnx' is one word too many for check" check "$model" two.onnx
refused 2 "^protrain: --steps: '99999999999999999999' is too large" train "$model" --steps 99999999999999999999
train 2 "^protrain: --labels: 'other' is none of same|next" --labels other
train 2 "did you mean 'learning_rate'" --set learning_rat=1
train 2 "no option 'batch_size'; did you mean 'dim', such as batch=8?" --set batch_size=8
train 2 'key=value' --set seed
train 2 'learning_rate' --learning-rate -1
train 2 'in B, KB, MB, .* or TiB' --memory 6M
train 2 'not a whole number' --steps -1
train 2 'not a whole number' --epochs 0
refused 2 'nothing for --save, --metrics' train "$model" --steps 0 --export out.onnx --save saved
refused 2 'nothing for --save, --metrics' train "$model" --steps 0 --export out.onnx --eval-tokens "$model"
refused 2 'give one of them' train "$model" --steps 0
train 2 'needs --save DIR' --save-every 1
train 2 'no input ids' --input "ids=$fixtures/labels.npy"
train 2 'twice' --input "labels=$fixtures/labels.npy"
refused 2 "the model's inputs are input_ids, labels" train "$model" --steps 1
refused 2 'no data for labels: give --input labels=FILE.npy' train "$model" --steps 1 \
  --input input_ids="$fixtures/input_ids.npy"
masked=$fixtures/families/gpt-neox.dynamo23.onnx
head -c 4096 /dev/zero >zeros.bin
windows="--steps 1 --tokens zeros.bin --batch 2 --sequence 16 --labels same"
refused 2 'no data for attention_mask: give --input attention_mask=FILE.npy, or --constant attention_mask=1' \
  train "$masked" $windows
refused 2 'needs --batch' train "$model" --steps 1 --tokens "$model"

# Errors.
train 1 'CUDA' --device cuda:4096
refused 1 'CUDA' check "$model" --device cuda:4096
train 1 'it must match at least two' --tie 'transformer.wte.weight|nothing'
refused 1 'no-such.onnx' train no-such.onnx --steps 1
python3 -c 'import sys; sys.stdout.buffer.write(open(sys.argv[1], "rb").read().replace(b":\3own", b":\3our"))' \
  "$fixtures/functions.onnx" >unnamed.onnx
refused 1 'is of a domain that opset_import does not name' train unnamed.onnx --steps 1 --input "x=$fixtures/labels.npy"
refused 1 'no-such.npy' train "$model" --steps 1 --input input_ids=no-such.npy
refused 1 'not a .npy file' train "$model" --steps 1 --input "input_ids=$model"
refused 1 'regular file' train "$model" --steps 1 --input input_ids=/dev/zero
head -c 200 "$fixtures/labels.npy" >short.npy
refused 1 'do not fit its shape' train "$model" --steps 1 --input input_ids=short.npy
printf abc >odd.bin
refused 1 'uint16' train "$model" --steps 1 --tokens odd.bin --batch 1 --sequence 8
printf abcd >few.bin
refused 1 'too few' train "$model" --steps 1 --tokens few.bin --batch 1 --sequence 8
iconv -f ISO-8859-1 -t UTF-32LE /usr/share/common-licenses/GPL-3 >wide.bin
tokens() { # SENTENCE ARGS...
  sentence=$1
  shift
  refused 1 "$sentence" train "$model" --steps 1 --batch 1 --sequence 8 "$@"
}
tokens 'wide.bin: .* looks like uint32; say --token-type uint32, or uint16 if it is not' --tokens wide.bin
tokens 'no multiple of 4, .* uint32' --tokens odd.bin --token-type uint32
{ printf '\210\330\064\001\001\000\000\000\010\000\000\000' && head -c 1028 /dev/zero; } >llmc.bin
tokens 'llmc.bin: its header says uint16, not uint32' --tokens llmc.bin --token-type uint32
refused 2 'token-type' train "$model" --steps 1 --tokens wide.bin --token-type int64
refused 2 'needs --tokens' train "$model" --steps 1 --token-type uint16
# Data that would go unused.
train 2 '--labels needs --tokens' --labels next
train 2 '--sequence needs --tokens' --sequence 32
train 2 '--eval-sequence needs --eval-tokens' --eval-sequence 32 --eval-input labels=labels.npy
for name in input_ids labels; do
  refused 2 "input $name is given twice; one source is .*$name.npy" train "$model" --steps 1 --batch 2 --sequence 4 \
    --tokens llmc.bin --labels same --input "$name=$fixtures/$name.npy"
done
for flag in '--separator 5' '--token-type uint16' '--labels next' '--batch 2' '--sequence 8'; do
  # shellcheck disable=SC2086
  refused 2 'are for --gradients' check "$model" $flag
done
# Flags about tokens may be for those of evaluations alone.
run train "$model" --steps 1 $data --eval-tokens llmc.bin --labels same --sequence 4 --eval-batch 1
leaves_with 0
# Logits are compared with the token that follows, once, unless the user says otherwise.
logits() { # STATUS ARGS...
  expected=$1
  shift
  run train "$fixtures/torchscript-gpt2-opset13.onnx" --steps 1 --tokens llmc.bin --batch 1 --sequence 4 \
    --loss cross_entropy --loss-output /m/lm_head/MatMul_output_0 "$@"
  leaves_with "$expected"
}
logits 2
complains 'needs to know what a label is: give --loss-shift 1 or --labels next'
logits 2 --labels next --loss-shift 1
complains 'shift the labels twice'
for labels in '--labels next' '--labels same' '--loss-shift 1' '--loss-shift 1 --labels same'; do logits 0 $labels; done
# The model's vocabulary has 512 tokens.
head -c 4096 "$command" | tr '\000-\377' '\377' >large.bin
run train "$model" --steps 1 --batch 1 --sequence 8 --tokens large.bin
leaves_with 1
complains 'index 65535 is outside 0..511'
complains 'large.bin was read as uint16, and the largest token id of this batch is 65535'
complains 'another tokenizer, or --token-type'
run eval "$model" --batch 1 --sequence 8 --tokens large.bin
leaves_with 1
complains 'large.bin was read as uint16, and the largest token id of this batch is 65535'
# shellcheck disable=SC2086
run train "$model" --steps 1 $data --eval-tokens large.bin --eval-batch 1 --eval-sequence 8
leaves_with 1
complains 'large.bin was read as uint16, and the largest token id of this batch is 65535'
# Inputs with different numbers of steps are refused, because they would no longer match after the end of the shorter
# one.
{ head -c 128 "$fixtures/labels.npy" | LC_ALL=C sed 's/(10, /(4,  /' && tail -c +129 "$fixtures/labels.npy" | head -c 2048; } >four.npy
refused 1 'four.npy has 4 batches, .*input_ids.npy has 10; ' train "$model" --steps 1 \
  --input input_ids="$fixtures/input_ids.npy" --input labels=four.npy
train 1 'No such file or directory' --metrics no/such/folder.jsonl
train 1 'no/such/folder' --resume no/such/folder
train 1 'no complete checkpoint' --resume .
train 1 "no output logits; the model.s outputs are loss" --loss cross_entropy --loss-output logits
# A model that cannot be trained is reported before its data.
refused 1 'no scalar float32 output that would be its loss' train "$fixtures/objectives/tokens.onnx" $windows
refused 1 'no output logit; ' train "$fixtures/classifier.onnx" --loss cross_entropy --loss-output logit --steps 1 \
  --input labels=no-such.npy
refused 1 'no input atention_mask to bind to a value; its inputs are input_ids, attention_mask, labels' \
  train "$masked" $windows --constant atention_mask=1
train 1 'no output of floats' --loss mse
train 1 'no effect unless the option loss is set' --loss-shift 1
train 1 'smallest' --memory 64KiB
touch plain
train 1 'plain/.: Not a directory' --save plain
train 1 'No such file or directory' --save no/such/folder
train 1 'No such file or directory' --export no/such/out.onnx
train 1 'No such file or directory' --report no/such/out.html
train 2 "report writes OUT.html or OUT.json, not 'out.pdf'" --report out.pdf
[ ! -e out.pdf ] || wrong "a report was begun"
# Outputs that would replace what the run reads, that share a path, or that no file can have.
cp "$model" own.onnx
cp "$fixtures/labels.npy" own.npy
head -c 4096 "$command" | tr '\000-\377' '\001' >own.bin
own() { # SENTENCE ARGS...
  sentence=$1
  shift
  refused 1 "$sentence" train own.onnx --steps 2 --input input_ids="$fixtures/input_ids.npy" --input labels=own.npy "$@"
}
own 'own.onnx: --export would replace what this run reads as MODEL' --export own.onnx
own 'would replace what this run reads as MODEL' --report ./own.onnx
own 'own.npy: --metrics would replace what this run reads as --input' --metrics own.npy
own 'own.bin: --export would replace what this run reads as --eval-tokens' --export own.bin --eval-tokens own.bin \
  --eval-batch 2 --eval-sequence 32
tokens 'own.bin: --export would replace what this run reads as --tokens' --tokens own.bin=2 --export own.bin
tokens 'own.bin.data\|own.bin: --export' --tokens own.bin --export "$PWD/own.bin"
mv own.bin weights.data
tokens 'weights.data: --export would replace what this run reads as --tokens' --tokens weights.data --export weights
printf 'm.transformer.wpe.weight\n' >list.txt
own 'list.txt: --metrics would replace what this run reads as --parameters-from' --parameters-from list.txt \
  --metrics list.txt
own 'both --export and --report would write it' --export result --report ./result
own 'result.data: both --export and --metrics would write it' --export result --metrics result.data
# A model may be read from several files.
python3 - <<'END_OF_PYTHON' || wrong "no model could be written"
import struct

def field(number, value):
    if isinstance(value, int):
        return bytes([number * 8, value])
    value = value.encode() if isinstance(value, str) else value
    return bytes([number * 8 + 2, len(value)]) + value

def value(name):
    dims = field(1, field(1, 2)) + field(1, field(1, 2))
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

entries = {"location": "shared.data", "offset": "0", "length": "16"}
weight = (field(1, 2) + field(1, 2) + field(2, 1) + field(8, "w") + field(14, 1) +
          b"".join(field(13, field(1, key) + field(2, entries[key])) for key in entries))
graph = (field(1, field(1, "x") + field(1, "w") + field(2, "y") + field(4, "MatMul")) + field(2, "g") + field(5, weight) +
         field(11, value("x")) + field(12, value("y")))
open("parts.onnx", "wb").write(field(1, 8) + bytes([7 * 8 + 2, len(graph) % 128 + 128, len(graph) // 128]) + graph + field(8, field(2, 18)))
open("shared.data", "wb").write(struct.pack("<4f", 1, 2, 3, 4))
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2), }".ljust(117) + "\n"
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<4f", 1, 0, 2, 1))
END_OF_PYTHON
cp shared.data unshared
parts() { # SENTENCE ARGS...
  sentence=$1
  shift
  refused 1 "$sentence" train parts.onnx --loss mse --steps 1 --input x=x.npy --input labels=x.npy "$@"
}
parts 'shared.data: --export would replace what this run reads as a part of MODEL' --export shared
parts 'shared.data: --metrics would replace what this run reads as a part of MODEL' --metrics ./shared.data
refused 1 'shared.data: --save-plan would replace what this run reads as a part of MODEL' plan parts.onnx --loss mse \
  --save-plan shared.data
cmp shared.data unshared || wrong "the model's data were replaced"
run train parts.onnx --loss mse --steps 1 --input x=x.npy --input labels=x.npy --export apart
leaves_with 0
cp -r "$fixtures/artifacts/plain" artifacts
for part in training_model.onnx eval_model.onnx optimizer_model.onnx checkpoint; do
  refused 1 "$part: --picture would replace what this run reads as a part of MODEL" plan artifacts \
    --picture artifacts/$part
done

mkdir folder
own 'folder: a directory, and --export needs the name of a file' --export folder
own 'folder: a directory, and --report needs the name of a file' --report folder
own 'not a regular file' --export /dev/null
own 'no/such: No such file or directory' --lora '*.c_attn.weight' --save-adapter no/such/adapter
own 'own.npy: Not a directory' --lora '*.c_attn.weight' --save-adapter own.npy
[ ! -e result ] || wrong "something was written"
cmp own.onnx "$model" || wrong "the model was replaced"
printf 'kept\n' >kept.jsonl
train 1 'no-such-checkpoint' --metrics kept.jsonl --resume no-such-checkpoint
grep -q kept kept.jsonl
