#!/bin/sh
# Two ranks on emulated GPUs, whose exchanges Gloo carries through the host's memory, must give the metrics of one rank
# with twice the micro-batches: with chunks on the host, and with everything on the device in bfloat16.
# usage: emulated.sh COMMAND EMULATED_DIR GLOO_PLUGIN FIXTURES
set -eu
command=$1 emulated=$2 gloo=$3 fixtures=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$emulated"/lib* "$gloo" "$work" # the library looks for its plugins beside itself
export LD_LIBRARY_PATH="$work"
tr -cd 'a-z ' <"$0" | sed 's/./&\x00/g' >"$work/tokens" # 16 bits each; short windows, because emulated kernels are slow

train() { # METRICS ARGS...
  metrics=$1
  shift
  timeout 200 "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --tokens "$work/tokens" --batch 2 --sequence 8 \
    --labels same --steps 2 --threads 1 --device cuda:0 --metrics "$metrics" "$@"
}
bits() { sed 's/.*"loss_bits"/"loss_bits"/' "$1"; }

expect_same() { # ARGS...
  train "$work/one" --accumulation 2 "$@" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
  mkdir "$work/meet"
  for rank in 0 1; do
    train "$work/two" --rank $rank --ranks 2 --comm gloo --rendezvous "$work/meet" --comm-timeout 60 "$@" \
      >"$work/log.$rank" 2>&1 &
  done
  wait
  rm -r "$work/meet"
  [ "$(bits "$work/one")" = "$(bits "$work/two")" ] && [ "$(wc -l <"$work/two")" -eq 2 ] || {
    echo "two ranks differ from one with: $*"
    cat "$work/one" "$work/two" "$work"/log.*
    exit 1
  }
  echo "two ranks are as one with: $*"
}

expect_same --device-memory 3MiB
expect_same --device-memory 64MiB --precision bf16 --clip-norm 0.5
