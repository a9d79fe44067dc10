#!/bin/sh
# Tests protrain check and inspect on a model that trains, --help and --version.
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
run check "$model" --constant mask=1
prints '  the model has no input mask to bind to a value'

# The model is y = x folded m.scale, where `folded` is a Constant and m.scale an initializer. It is doubtful whether
# they are parameters. check must list both, and say what settles the doubt.
python3 - <<'END_OF_PYTHON' || wrong "no model could be written"
import struct

def field(number, value):
    if isinstance(value, int):
        return bytes([number * 8 % 128 + 128, number * 8 // 128, value] if number > 15 else [number * 8, value])
    value = value.encode() if isinstance(value, str) else value
    return bytes([number * 8 + 2, len(value)]) + value

def floats(name, dims, *values):
    return b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{len(values)}f", *values))

def node(op, inputs, output, attribute=b""):
    return field(1, b"".join(field(1, i) for i in inputs) + field(2, output) + field(4, op) + attribute)

def tensor(name):
    dims = field(1, field(1, 2)) + field(1, field(1, 2))
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

value = field(5, field(1, "value") + field(5, floats("", [2, 2], .1, -.7, .4, .9)) + field(20, 4))
graph = (node("Constant", [], "folded", value) + node("MatMul", ["x", "folded"], "z") + node("Mul", ["z", "m.scale"], "y") +
         field(2, "g") + field(5, floats("m.scale", [], .5)) + field(11, tensor("x")) + field(12, tensor("y")))
open("folded.onnx", "wb").write(field(1, 8) + bytes([7 * 8 + 2, len(graph) % 128 + 128, len(graph) // 128]) + graph + field(8, field(2, 18)))
END_OF_PYTHON
run check folded.onnx --loss mse
leaves_with 0
quiet
prints '^doubtful: 1; --trainable NAME or --frozen NAME settles each$'
prints '^  m.scale taken as trained: '
prints '^doubtful Constants: 1; no option .* export it again$'
prints '^  folded taken as constant: '

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
run help train
prints "^  --steps"
run help
prints "^  train "
run --version
leaves_with 0
prints '^0\.'
