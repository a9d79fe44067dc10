#!/bin/sh
# protrain check and inspect on a model that trains, --help and --version.
. "$(dirname "$0")/expect.sh"

run check "$model"
leaves_with 0
quiet
prints 'can be trained'
prints 'input_ids int64 \[batch, sequence\]'
prints "m.transformer.wpe.weight \[64, 64\]"
run check "$model" --json
leaves_with 0
prints '"trainable": *true'
run check no-such.onnx
leaves_with 1
complains 'no-such.onnx'

run inspect "$model" --dim batch=2 --dim sequence=32
leaves_with 0
quiet
prints MatMul
prints n_persist
run inspect "$model" plan
leaves_with 0
complains 'dim batch=2 is assumed'
prints n_persist

run train --help
leaves_with 0
for option in --steps --input --tokens --batch --sequence --labels --loss --loss-output --loss-labels --loss-shift --loss-from --token-type \
  --optimizer --momentum --tokens-per-step --learning-rate --beta1 --beta2 --epsilon --weight-decay --precision --device \
  --threads --seed --memory --device-memory --host-memory --offload-dir --disk-memory --plan --set --metrics --save \
  --save-every --resume --export --report; do
  prints "^  *$option\b"
done
run --version
leaves_with 0
prints '^0\.'
