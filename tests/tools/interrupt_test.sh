#!/bin/sh
# Ctrl-C ends the run after the present step. The command must write all results and exit with 130. The end of the
# program that reads its output ends the run likewise, with 141. An error that spares
# the weights ends the run too. The command must then write all results, and exit with 1 and the error.
. "$(dirname "$0")/expect.sh"

# A shell without job control makes background jobs ignore SIGINT. `env` restores the default for the command.
ran='protrain train, interrupted'
env --default-signal=INT "$command" train "$model" --steps 1000000 --metrics metrics.jsonl --save saved --export trained.onnx \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" >out 2>err &
child=$!
interrupt_once [ -s metrics.jsonl ]
leaves_with 130
quiet
[ -s metrics.jsonl ] || wrong "no step was taken"
[ "$(tail -c 1 metrics.jsonl | od -An -c | tr -d ' ')" = '\n' ] || wrong "the last line is cut"
prints "stopped after step $(wc -l <metrics.jsonl)\$"
[ -s trained.onnx ] || wrong "nothing was exported"
[ -s "saved/step-$(printf %010d "$(wc -l <metrics.jsonl)")/manifest.json" ] || wrong "the last step was not saved"

ran='protrain train | head -n 1'
{
  "$command" train "$model" --steps 1000000 --metrics piped.jsonl --save piped --export piped.onnx \
    --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" 2>err
  echo $? >status
} | head -n 1 >out
status=$(cat status)
leaves_with 141
quiet
[ -s piped.onnx ] && [ "$(ls piped)" = "step-$(printf %010d "$(wc -l <piped.jsonl)")" ] || wrong "the results were not saved"

# A label of the fifth batch is no class of the model: the second one, because the graph ignores the first.
{
  head -c $((128 + 4 * 2 * 32 * 8 + 8)) "$fixtures/labels.npy"
  printf '\377\377\377\000\000\000\000\000'
  tail -c +$((128 + 4 * 2 * 32 * 8 + 17)) "$fixtures/labels.npy"
} >bad.npy
ends_early() { # LABELS ARGS...
  labels=$1
  shift
  run train "$model" --input input_ids="$fixtures/input_ids.npy" --input labels="$labels" --seed 3 "$@"
}
ends_early "$fixtures/labels.npy" --steps 4 --export four.onnx
leaves_with 0
ends_early bad.npy --steps 10 --save bad --export bad.onnx --report bad.json
leaves_with 1
complains 'label 16777215'
[ "$(sed -n 2p err)" = 'protrain: saved after step 4: bad.json, bad, bad.onnx' ] || wrong "other results were saved"
[ "$(wc -l <err)" -eq 2 ] || wrong "expected two lines"
[ "$(ls bad)" = step-0000000004 ] || wrong "expected the checkpoint of step 4"
cmp four.onnx bad.onnx || wrong "the weights are not those after step 4"

# A result that cannot be written does not hide the first error, and the others are written.
ends_early bad.npy --steps 10 --export bad.onnx --report /dev/full
leaves_with 1
[ "$(cut -c1-20 err | sed -n '3p')" = 'protrain: /dev/full:' ] || wrong "the report's error comes last"
prints 'step 4'
complains 'saved after step 4: bad.onnx'

# An error that nobody can read does not keep the results from being written, and does not change the status.
ran='protrain train, without stderr'
"$command" train "$model" --input input_ids="$fixtures/input_ids.npy" --input labels=bad.npy --seed 3 --steps 10 \
  --save unheard --export unheard.onnx --report unheard.json >out 2>/dev/full
status=$?
leaves_with 1
[ "$(ls unheard)" = step-0000000004 ] && [ -s unheard.json ] || wrong "expected all results of step 4"
cmp four.onnx unheard.onnx || wrong "the weights are not those after step 4"
"$command" train "$model" --steps no 2>/dev/full
status=$?
leaves_with 2

# In the middle of a step there is no checkpoint, but the weights are those of the last step.
ends_early "$fixtures/labels.npy" --steps 1 --accumulation 3 --export one.onnx
leaves_with 0
ends_early bad.npy --steps 3 --accumulation 3 --save middle --export middle.onnx
leaves_with 1
complains 'saved after step 1: middle.onnx'
complains 'no checkpoint: the error came amid the batches of a step'
cmp one.onnx middle.onnx || wrong "the weights are not those after step 1"

# Errors of the command itself, and losses that are not finite.
ends_early "$fixtures/labels.npy" --steps 10 --metrics /dev/full --save full
leaves_with 1
complains '/dev/full: No space left'
complains 'saved after step 1: full'
ends_early "$fixtures/labels.npy" --steps 10 --learning-rate 1e30 --on-nonfinite rollback --save nan
leaves_with 1
complains 'not finite; no parameter was changed'
complains 'saved after step [0-9]*: nan$'
ends_early bad.npy --steps 2 --accumulation 5 --save first --export first.onnx
leaves_with 1
[ "$(wc -l <err)" -eq 1 ] || wrong "expected one line"
[ -z "$(ls -A first)" ] && [ ! -e first.onnx ] || wrong "no step was taken, so there is nothing to save"
