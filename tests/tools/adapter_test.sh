#!/bin/sh
# Tests adapters on the command line: training them, going on with them, and merging them into the model.
. "$(dirname "$0")/expect.sh"

loss() { sed -n '1s/.*"loss":\([^,]*\),.*/\1/p' metrics.jsonl; } # of the first step
near() { awk -v a="$1" -v b="$2" 'BEGIN {exit !(a - b < 1e-4 && b - a < 1e-4)}' || wrong "$1 is not near $2"; }
train() { # MODEL STEPS ARGS...
  trained=$1
  steps=$2
  shift 2
  run train "$trained" --steps "$steps" --input input_ids="$fixtures/input_ids.npy" \
    --input labels="$fixtures/labels.npy" --metrics metrics.jsonl "$@"
}

train "$model" 5 --lora '*.c_attn.weight,rank=4' --lora '*.c_fc.weight' --save-adapter adapter --export exported.onnx
leaves_with 0
quiet
before=$(loss)
[ -s adapter/adapter_model.safetensors ] || wrong "no adapter was saved"
grep -q '"rank_pattern": {$' adapter/adapter_config.json || wrong "the ranks of some modules are lost"

train "$model" 1 --adapter adapter
leaves_with 0
after=$(loss)
awk -v a="$after" -v b="$before" 'BEGIN {exit !(a < b)}' || wrong "the adapter changes nothing"

# An adapter goes into a directory that exists, even by a name that ends in "..".
mkdir -p place/below
train "$model" 1 --lora '*.c_attn.weight,rank=4' --save-adapter place/below/..
leaves_with 0
[ "$(ls -A place)" = "$(printf 'adapter_config.json\nadapter_model.safetensors\nbelow')" ] || wrong "another place was written"
[ -z "$(ls -A place/below)" ] || wrong "the trial is left behind"
rm -r place

# An adapter that cannot be written is refused before the first step.
rm metrics.jsonl
train "$model" 1 --save-adapter none
leaves_with 1
complains 'the session has none; create it with the option lora or adapter'
train "$model" 1 --lora '*.c_attn.weight' --trainable '*.ln_1.weight' --save-adapter none
leaves_with 1
complains 'a file of adapters cannot hold it'
train "$model" 1 --adapter adapter --save-adapter ./adapter
leaves_with 1
complains './adapter: --save-adapter would replace what this run reads as --adapter'
head -c 4096 "$command" | tr '\000-\377' '\001' >tokens.bin
refused 1 '_Q4: the file holds it as uint8, so --export cannot merge its adapter' train \
  "$fixtures/quantised/tokens-int4.onnx" --tokens tokens.bin --batch 2 --sequence 16 --steps 1 --lora '*_Q4' \
  --export merged.onnx
rm tokens.bin
[ "$(ls -A | tr '\n' ' ')" = 'adapter err exported.onnx out ' ] || wrong "something was written"

run merge "$model" adapter merged.onnx
leaves_with 0
weights=adapter/adapter_model.safetensors
refused 1 "$weights: OUT would replace what this run reads as ADAPTER" merge "$model" adapter $weights
refused 1 "$weights: --export would replace what this run reads as --adapter" train "$model" --steps 1 --adapter adapter \
  --export $weights --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
for file in merged exported; do
  train $file.onnx 1
  near "$(loss)" "$after"
done

run check "$model" --adapter adapter
leaves_with 0
prints 'adapters: 8'
prints 'trained: '

run check "$model" --adapter nothing
leaves_with 1
prints '  nothing/adapter_config.json: '

sed 's/"r": 4/"r": 5/' adapter/adapter_config.json >adapter/changed
mv adapter/changed adapter/adapter_config.json
run check "$model" --adapter adapter
leaves_with 1
prints 'r and rank_pattern give m.transformer.h.0.attn.c_attn another rank'
refused 1 'adapter_config.json' merge "$model" nothing out.onnx
refused 1 'adapter_model.safetensors: is a file; give the directory that holds' merge "$model" \
  adapter/adapter_model.safetensors out.onnx
refused 1 'set one of them' check "$model" --adapter adapter --lora '*'
refused 1 'matches no parameter' train "$model" --steps 1 --lora nothing --input input_ids="$fixtures/input_ids.npy" \
  --input labels="$fixtures/labels.npy"
