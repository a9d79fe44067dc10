#!/bin/bash
# Runs on a machine with a GPU, from the folder that tests/gpu/bundle.sh packed:   kit.sh [--small] PART
#   correct   2 minutes: the machine, its ceilings, kernels against the reference, one session, golden losses
#   speed     8 minutes: models that stay on the GPU, PyTorch on them in three modes, the time of each kernel in a step
#   budgets   9 minutes: predicted and measured steps within ten budgets, updates after backward, one buffer, 13 billion parameters
#   offload   9 minutes: a 7B and a 3B model in 24 GiB of the GPU, PyTorch's FSDP2, random plans, the sanitizer
# --small: uses fixtures in place of large models, and parts of the suites, to try the kit without a GPU.
# Results go to $OUT, or to results/ beside this file. A job for which the machine lacks something is skipped.
set -u
cd "$(dirname "$0")" || exit 1
small=
[ "${1:-}" = --small ] && { small=1; shift; }
part=${1:-}
case $part in correct | speed | budgets | offload) ;; *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
. ./env.sh
exec > >(tee "$results/$part.log") 2>&1
failed=0
say() { echo "== $1 [$SECONDS s]"; }
must() { "$@" || { local status=$?; failed=1; echo "FAILED ($status): $*"; }; }
have() { command -v "$1" > /dev/null || { echo "skipped: there is no $1"; return 1; }; }
torch_here() { python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2> /dev/null || { echo "skipped: no PyTorch with a GPU"; return 1; }; }

conformance() { # the shards run at the same time
  local filter='*/cuda' shards=8 i pids=()
  [ $small ] && filter='Queues.*/cuda:Recordings.*/cuda:UpdateKernel.*/cuda' shards=2
  for ((i = 0; i < shards; i++)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i PROTRAIN_REQUIRED_DEVICE=cuda:0 timeout 240 \
      "$build/tests/test_conformance" --gtest_filter="$filter" --gtest_brief=1 > "$scratch/shard-$i" 2>&1 &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do wait "${pids[$i]}" || { failed=1; echo "FAILED: shard $i"; }; done
  cat "$scratch"/shard-* > "$results/conformance.txt"
  grep -hE '^\[  (PASSED|FAILED)|tests ran|required' "$results/conformance.txt" | sort | uniq -c | sort -rn | head -40
}

correct() {
  say machine
  have nvidia-smi && nvidia-smi -L && nvidia-smi --query-gpu=memory.total,power.limit,pcie.link.gen.max --format=csv
  nproc; free -g | head -2; df -h "$scratch" | tail -1; lscpu | grep -E 'Model name|NUMA node\(s\)'; ldd --version | head -1
  say libraries
  if ldd "$build/libprotrain_cuda.so" "$build/libprotrain.so.0" "$build/tests/test_conformance" | grep 'not found'; then failed=1; fi
  say ceilings; torch_here && must timeout 100 python3 ceilings.py
  say conformance; conformance
  say session
  must timeout 120 "$protrain" train tests/fixtures/gpt2-dynamic-opset18.onnx --device cuda:0 --steps 10 --precision bf16 \
    --input input_ids=tests/fixtures/input_ids.npy --input labels=tests/fixtures/labels.npy --report "$results/small.html"
  say golden; must timeout 200 python3 tests/gpu/check.py "$build" --jobs 8 ${small:+--quick} golden
}

speed() {
  local jobs='gpt2-1.5b:8 llama-1.1b:8 gpt2-1.5b:16 llama-1.1b:16' peers='gpt2-1.5b:8:compiled-autocast llama-1.1b:8:compiled-autocast gpt2-1.5b:8:autocast'
  [ $small ] && jobs='gpt2-dynamic-opset18:2' peers=
  for job in $jobs; do say "ours $job"; must python3 speed.py ours "$job"; done
  if [ "$peers" ] && torch_here; then # compiling a model of 48 layers takes a minute or two
    for job in $peers; do
      [ $SECONDS -gt 400 ] && { echo "skipped for time: $job"; continue; }
      say "PyTorch $job"; must timeout 170 python3 speed.py peer "$job"
    done
  fi
  say "kernels of one step"
  have ncu && python3 speed.py ours "${jobs%% *}" --steps 1 --show > "$scratch/one-step" &&
    timeout 150 ncu --clock-control none --metrics gpu__time_duration.sum --csv $(cat "$scratch/one-step") > "$scratch/kernels.csv" 2> /dev/null
  if [ -s "$scratch/kernels.csv" ]; then python3 kernels.py "$scratch/kernels.csv"; gzip -c "$scratch/kernels.csv" > "$results/kernels.csv.gz"; fi
}

budgets() {
  local job memory options host='--host-memory 104GiB'
  local jobs='llama-1.1b:8|6GiB| llama-1.1b:8|8GiB| llama-1.1b:8|8GiB|--clip-norm=1 llama-3b:16|16GiB| llama-3b:16|24GiB|
    llama-3b:16|24GiB|--clip-norm=1 llama-3b:16|40GiB| llama-3b:16|40GiB|--clip-norm=1 mistral-7b:16|24GiB| mistral-7b:16|40GiB|'
  local ablation='llama-3b:8'
  [ $small ] && jobs='gpt2-dynamic-opset18:2|512KiB|' host='--host-memory 1GiB' ablation=
  for job in $jobs; do
    IFS='|' read -r job memory options <<< "$job"
    [ $SECONDS -gt 400 ] && { echo "skipped for time: $job $memory $options"; continue; }
    say "$job $memory $options"; must timeout 120 python3 speed.py ours "$job" --steps 7 -- --device-memory "$memory" $host $options
  done
  local plan='"n_persist": 12, "n_checkpoint": 26, "n_swap": 1, "n_selective": 1, "n_device_update": 11, "n_deferred": 0,
    "chunk_bytes": 100663296, "slack": 2'
  for options in '"n_buffer": 8' '"n_buffer": 8, "optimizer_order": "barrier"' '"n_buffer": 1'; do
    [ "$ablation" ] && [ $SECONDS -lt 450 ] || continue
    echo "{$plan, $options}" > "$scratch/ablation.json"
    say "ablation: $options"
    must timeout 60 python3 speed.py ours "$ablation" --steps 7 -- --device-memory 12GiB $host --plan "$scratch/ablation.json"
  done
  [ $small ] || [ $SECONDS -gt 480 ] || { say largest; must timeout 150 python3 speed.py ours llama-2-13b:16 --steps 4 -- --device-memory 76GiB $host; }
}

offload() {
  local jobs='mistral-7b:16 llama-3b:16' memory='--device-memory 24GiB --host-memory 104GiB' plans=50 peer=llama-3b
  [ $small ] && jobs='gpt2-dynamic-opset18:2' memory='--device-memory 512KiB --host-memory 1GiB' plans=1 peer=
  for job in $jobs; do
    say "$job"; must timeout 260 python3 speed.py ours "$job" --steps 6 -- $memory; free -g | sed -n 2p
  done
  if [ "$peer" ] && torch_here; then
    say "$peer and FSDP2"; must timeout 100 python3 speed.py ours $peer:8 --steps 8 -- --device-memory 12GiB --host-memory 104GiB
    must timeout 100 python3 bench/peers/fsdp2.py $peer 8 1024 5
  fi
  say "random plans"; must timeout 150 python3 tests/gpu/check.py "$build" --jobs 8 --plans $plans ${small:+--quick} invariance
  say sanitizer; must timeout 150 python3 tests/gpu/check.py "$build" --jobs 6 sanitizer
}

$part
say "end, $([ $failed = 0 ] && echo 'nothing failed' || echo 'with failures')"
exit $failed
