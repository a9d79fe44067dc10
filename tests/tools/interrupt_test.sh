#!/bin/sh
# Ctrl-C ends the run after the present step, or in the middle of an evaluation. The command must write all results and
# exit with 130. A closed terminal ends the run likewise, with 129, and so does the end of the program that reads its
# output, with 141. An error that spares the weights ends the run too. The command must then write all results, and exit
# with 1 and the error.
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

# The data of this evaluation take the command many minutes.
for name in input_ids labels; do
  head -c 128 "$fixtures/$name.npy" | LC_ALL=C sed 's/(10, 2, 32)/(1000000,2,32)/; s/  *$//' | head -c 127 >long.$name.npy
  { printf '%*s\n' $((127 - $(wc -c <long.$name.npy))) '' && tail -c +129 "$fixtures/$name.npy"; } >>long.$name.npy
  truncate -s $((128 + 1000000 * 2 * 32 * 8)) long.$name.npy
done
ran='protrain train, interrupted in an evaluation'
env --default-signal=INT "$command" train "$model" --steps 20 --eval-every 3 --metrics amid.jsonl --save amid --save-every 3 \
  --eval-input input_ids=long.input_ids.npy --eval-input labels=long.labels.npy \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" >out 2>err &
child=$!
two_steps() { [ -e amid.jsonl ] && [ "$(wc -l <amid.jsonl)" -ge 2 ]; }
interrupt_once two_steps
leaves_with 130
quiet
steps=$(wc -l <amid.jsonl)
[ "$steps" -le 3 ] || wrong "expected the end in the evaluation after step 3"
[ "$(ls amid)" = "step-$(printf %010d "$steps")" ] || wrong "expected a checkpoint of the last step"
grep -q eval_loss amid.jsonl && wrong "the evaluation did not come to its end"

ran='protrain train, without its terminal'
"$command" train "$model" --steps 1000000 --metrics hung.jsonl --save hung --export hung.onnx \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" >out 2>err &
child=$!
signal=HUP
interrupt_once [ -s hung.jsonl ]
leaves_with 129
[ -s hung.onnx ] && [ "$(ls hung)" = "step-$(printf %010d "$(wc -l <hung.jsonl)")" ] || wrong "the results were not saved"

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
