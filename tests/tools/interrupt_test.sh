#!/bin/sh
# Ctrl-C ends the run after the present step. The command must write all results and exit with 130.
. "$(dirname "$0")/expect.sh"

# A shell without job control makes background jobs ignore SIGINT. `env` restores the default for the command.
ran='protrain train, interrupted'
env --default-signal=INT "$command" train "$model" --steps 1000000 --metrics metrics.jsonl --save saved --export trained.onnx \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" >out 2>err &
child=$!
waited=0
until [ -s metrics.jsonl ]; do
  waited=$((waited + 1))
  [ $waited -lt 600 ] || break
  sleep 0.1
done
kill -INT $child
wait $child
status=$?
leaves_with 130
quiet
[ -s metrics.jsonl ] || wrong "no step was taken"
[ "$(tail -c 1 metrics.jsonl | od -An -c | tr -d ' ')" = '\n' ] || wrong "the last line is cut"
prints "stopped after step $(wc -l <metrics.jsonl)\$"
[ -s trained.onnx ] || wrong "nothing was exported"
[ -s "saved/step-$(printf %010d "$(wc -l <metrics.jsonl)")/manifest.json" ] || wrong "the last step was not saved"
