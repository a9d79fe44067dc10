#!/bin/sh
# Ranks on emulated GPUs exchange over the stand-in for NCCL. They must give the metrics of one rank that takes all
# their micro-batches: with everything on the device, with chunks on the host and on a disk, in fp32 and bf16, with
# clipping and accumulation, and under random plans. If ranks cannot use NCCL, they must say so.
# usage: nccl.sh COMMAND EMULATED_DIR STANDIN GLOO_PLUGIN FIXTURES    $PROTRAIN_PLANS: how many random plans (1)
set -eu
command=$1 emulated=$2 standin=$3 gloo=$4 fixtures=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/with" "$work/without"
cp "$emulated"/lib* "$gloo" "$work/with" # the library looks for its plugins beside itself
cp "$emulated"/lib* "$gloo" "$work/without"
cp "$standin" "$work/with"
export PROTRAIN_EMULATED_DEVICES=4
tr -cd 'a-z ' <"$0" | sed 's/./&\x00/g' >"$work/tokens" # 16 bits each; short windows, because emulated kernels are slow
wrong() {
  echo "nccl: $*"
  tail -n 5 "$work"/log* "$work"/got* 2>/dev/null
  exit 1
}

# train PLUGINS ARGS...
model=gpt2-dynamic-opset18
train() {
  plugins=$1
  shift
  LD_LIBRARY_PATH="$work/$plugins" timeout 200 "$command" train "$fixtures/$model.onnx" --tokens "$work/tokens" \
    --batch 2 --sequence 8 --labels same --steps 2 --threads 1 "$@"
}
# ranks PLUGINS COUNT ARGS...: trains as COUNT ranks. Rank 0's metrics go to `got`, each rank's output goes to log.RANK.
# The status is 0 if all succeed.
ranks() {
  folder=$1 count=$2
  shift 2
  rm -f "$work"/log.* "$work/got"
  place=$(mktemp -d -p "$work")
  children= rank=0
  while [ "$rank" -lt "$count" ]; do
    train "$folder" --rank "$rank" --ranks "$count" --rendezvous "$place" --comm-timeout 60 --metrics "$work/got" \
      "$@" >"$work/log.$rank" 2>&1 &
    children="$children $!"
    rank=$((rank + 1))
  done
  status=0
  for child in $children; do wait "$child" || status=$?; done
  return $status
}
bits() { sed 's/.*"loss_bits"/"loss_bits"/' "$1"; }

# expect_same COUNT ACCUMULATION ARGS...: COUNT ranks must give the metrics of one rank with COUNT * ACCUMULATION
# micro-batches.
expect_same() {
  count=$1 accumulation=$2
  shift 2
  rm -f "$work/one"
  train with --accumulation $((count * accumulation)) --device cuda:0 --metrics "$work/one" "$@" >"$work/log" 2>&1 ||
    wrong "one rank fails with: $*"
  ranks with "$count" --accumulation "$accumulation" --device cuda --comm nccl "$@" || wrong "$count ranks fail with: $*"
  [ "$(bits "$work/one")" = "$(bits "$work/got")" ] && [ "$(wc -l <"$work/got")" -eq 2 ] ||
    wrong "$count ranks differ from one with: $*"
  echo "$model: $count ranks are as one with: $*"
}

expect_same 4 1 --device-memory 64MiB --clip-norm 0.5
expect_same 3 2 --device-memory 3MiB
expect_same 2 2 --device-memory 64MiB --precision bf16 --clip-norm 0.5
expect_same 2 1 --device-memory 3MiB --host-memory 2MiB --offload-dir "$work"

seed=7
draw() { # BELOW
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  drawn=$((seed / 65536 % $1))
}
plan=0
while [ "$plan" -lt "${PROTRAIN_PLANS:-1}" ]; do
  text=
  for key in n_persist n_host n_swap n_checkpoint n_whole; do
    draw 4
    text="$text\"$key\": $drawn, "
  done
  draw 3
  echo "{$text\"chunk_bytes\": $((65536 << drawn))}" >"$work/plan.json"
  cat "$work/plan.json"
  draw 2
  precision=fp32
  [ "$drawn" -eq 0 ] || precision=bf16
  draw 2
  model=gpt2-dynamic-opset18
  [ "$drawn" -eq 0 ] || model=dropout-gpt
  draw 3
  accumulation=$((1 + drawn / 2))
  draw 3
  expect_same $((2 + drawn)) $accumulation --plan "$work/plan.json" --offload-dir "$work" --precision $precision --clip-norm 0.7
  plan=$((plan + 1))
done

model=gpt2-dynamic-opset18
# If a rank has no plugin for NCCL, Gloo carries the exchanges and rank 0 says why. With --comm nccl, ranks that cannot
# use NCCL fail instead.
ranks without 2 --device cuda || wrong 'without a plugin'
grep -q 'NCCL cannot be used: rank 0 cannot use NCCL: the plugin for NCCL cannot be loaded' "$work/log.0" ||
  wrong 'without a plugin: not said'
ranks without 2 --device cuda --comm nccl && wrong 'comm=nccl goes on without NCCL'
grep -q 'cannot use NCCL' "$work/log.1" || wrong 'comm=nccl: not said'
ranks with 2 --device cuda:1 --comm nccl && wrong 'two ranks share a GPU'
grep -q 'ranks 0 and 1 use the same GPU' "$work/log.1" || wrong 'two ranks on a GPU: not said'
ranks with 2 --device cpu --comm nccl && wrong 'comm=nccl goes on without GPUs'
grep -q 'computes on no GPU' "$work/log.0" || wrong 'without GPUs: not said'
echo 'nccl: as expected'
