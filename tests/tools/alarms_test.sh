#!/bin/sh
# Tests that check, train and the report name what would make a run fail without an error, and check --gradients.
. "$(dirname "$0")/expect.sh"
data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"

run check "$model" --group '*wpe*,learning_rate_scale=0'
leaves_with 0
prints '^alarm: the learning rate of m.transformer.wpe.weight is zero'
run check "$model" --group '*wpe*,learning_rate_scale=0' --json
prints '"code": "group_rate_zero"'

# shellcheck disable=SC2086
run train "$model" --steps 3 $data --group '*wpe*,learning_rate_scale=0' --schedule linear --total-steps 2 \
  --report report.html
leaves_with 0
complains '^protrain: alarm: the learning rate of m.transformer.wpe.weight is zero'
complains '^protrain: alarm: the learning rate of step 3 is zero'
[ "$(grep -c alarm: err)" -eq 2 ] || wrong "expected each alarm once"
grep -q 'the learning rate of step 3 is zero' report.html || wrong "the report does not list the alarm"

# shellcheck disable=SC2086
run train "$model" --steps 3 $data
leaves_with 0
quiet

# shellcheck disable=SC2086
run check "$model" --gradients --samples 1 $data
leaves_with 0
quiet
prints '^loss 6.302299, in float64 6.302299$'
prints '^  ok  .* m.lm_head.weight$'
refused 2 "--samples and data are for --gradients" check "$model" --samples 2
