#!/bin/sh
# Trains with the command as several processes, over MPI and over Gloo. Any number of ranks must give the same metrics
# and exported model as one rank, even after a resume with another number. If a rank fails or is killed or interrupted,
# all must end.
# usage: processes.sh COMMAND FIXTURES COMM_RANKS TRANSPORT    openmpi, mpich, gloo (which meets in a folder), gloo-port
set -eu
command=$1 fixtures=$2 comm_ranks=$3 transport=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
wrong() {
  echo "$transport: $*"
  tail -n 5 out.* err.* log 2>/dev/null
  exit 1
}

# Open MPI refuses to run for root, and more ranks than cores, unless it is told otherwise. If the machine has a network
# interface that leads nowhere, version 5 prints a line about it on each rank, so ranks keep to the loopback.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
case $transport in
  openmpi) launcher='mpirun.openmpi --oversubscribe --mca btl_tcp_if_include lo' ;;
  mpich) launcher=mpirun.mpich ;;
  *) launcher= ;;
esac
[ -z "$launcher" ] || timeout 30 $launcher -n 2 sleep 0.1 >log 2>&1 || {
  echo "skipped: $launcher does not start programs here: $(head -n 1 log)"
  exit 77
}

# rank.sh runs one rank. It keeps the process's id and output in files that end in the rank's number. RANK_1_ADDS has
# arguments for rank 1 alone, RANK_1_BLOCKS limits the size of its files. A shell's background jobs ignore SIGINT, and
# `env` restores the default.
cat >rank.sh <<'RANK'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${GLOO_RANK-0}}}
[ "$rank" != 1 ] || set -- "$@" $RANK_1_ADDS
[ "$rank" != 1 ] || [ -z "$RANK_1_BLOCKS" ] || { trap '' XFSZ && ulimit -f "$RANK_1_BLOCKS"; }
echo $$ >pid.$rank
exec env --default-signal=INT "$@" >out.$rank 2>err.$rank
RANK
export RANK_1_ADDS= RANK_1_BLOCKS=

# start RANKS ARGS...: trains with this number of ranks. Sets `status` to that of mpirun, or with Gloo to the first
# rank's status that is not 0.
start() {
  ranks=$1
  shift
  set -- "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 --comm-timeout 20 "$@"
  rm -f pid.* out.* err.* status.*
  status=0
  if [ -n "$launcher" ]; then
    timeout 60 $launcher -n "$ranks" sh rank.sh "$@" >log 2>&1 || status=$?
    return
  fi
  place=$(mktemp -d -p "$work")
  [ "$transport" = gloo ] || place=127.0.0.1:$("$comm_ranks" port)
  children= rank=0
  while [ "$rank" -lt "$ranks" ]; do
    GLOO_RANK=$rank timeout 60 sh rank.sh "$@" --ranks "$ranks" --rank "$rank" --rendezvous "$place" &
    children="$children $!"
    rank=$((rank + 1))
  done
  rank=0
  for child in $children; do
    other=0
    wait "$child" || other=$?
    echo "$other" >"status.$rank"
    [ "$status" -ne 0 ] || status=$other
    rank=$((rank + 1))
  done
}
succeeds() { [ "$status" -eq 0 ] || wrong "$1: status $status"; }
fails() { [ "$status" -ne 0 ] && [ "$status" -ne 124 ] || wrong "$1: status $status"; }

bits() { sed 's/.*"step":\([0-9]*\).*"loss_bits":"\([0-9a-f]*\)","grad_norm_bits":"\([0-9a-f]*\)".*/\1 \2 \3/' "$1"; }
# same_as NAME WHAT: compares the results of the last run, got.jsonl and got.onnx, with NAME.jsonl and NAME.onnx.
same_as() {
  succeeds "$2"
  [ "$(bits "$1.jsonl" | tail -n "$(wc -l <got.jsonl)")" = "$(bits got.jsonl)" ] || wrong "$2: another loss or norm"
  cmp "$1.onnx" got.onnx || wrong "$2: other weights"
  for rank in 1 2 3; do
    [ ! -s "out.$rank" ] && [ ! -s "err.$rank" ] || wrong "$2: rank $rank printed"
  done
  rm got.jsonl got.onnx
}
share() { echo "--accumulation $((12 / $1)) --metrics got.jsonl --export got.onnx"; } # RANKS

arrays="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
"$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 --steps 4 --accumulation 12 $arrays \
  --metrics whole.jsonl --export whole.onnx >log
echo '{"n_persist": 3, "n_host": 4, "n_swap": 1, "n_checkpoint": 1, "chunk_bytes": 65536}' >plan.json
start 2 --steps 4 $(share 2) $arrays --plan plan.json --offload-dir .
same_as whole '2 ranks with a disk'
start 4 --steps 4 $(share 4) $arrays --save saved --save-every 2
same_as whole '4 ranks'
# Wherever Gloo's ranks have met, they train alike. The place matters again when a rank is lost.
if [ "$transport" != gloo-port ]; then
  for ranks in 3 1 2 4; do
    start $ranks --steps 2 $(share $ranks) $arrays --resume saved/step-0000000002
    same_as whole "$ranks ranks after 4"
  done

  # Ranks also divide the windows of a token file among them.
  iconv -f ISO-8859-1 -t UTF-16LE "$fixtures/gpt2.json" >tokens.bin
  windows='--tokens tokens.bin --batch 1 --sequence 16'
  "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 --steps 2 --accumulation 12 $windows \
    --metrics windows.jsonl --export windows.onnx >log
  start 3 --steps 2 $(share 3) $windows
  same_as windows '3 ranks on windows'

  # Each window counts once in an evaluation, for any number of ranks. Three ranks share the 7 batches of 3 windows and
  # the last of 1.
  head -c 704 tokens.bin >held-out.bin
  held_out='--steps 1 --accumulation 6 --eval-tokens held-out.bin --eval-batch 3'
  eval_loss() { sed 's/.*"eval_loss":\([0-9.]*\),.*/\1/' "$1"; }
  "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 $windows $held_out --metrics one.jsonl >log
  start 3 $windows $held_out --accumulation 2 --metrics three.jsonl
  succeeds 'an evaluation on 3 ranks'
  awk -v a="$(eval_loss one.jsonl)" -v b="$(eval_loss three.jsonl)" \
    'BEGIN {d = a / b - 1; exit !(d < 1e-6 && d > -1e-6)}' || wrong 'an evaluation on 3 ranks: another loss'

  RANK_1_ADDS='--learning-rate 0.5'
  start 2 --steps 1 $arrays
  fails 'other options'
  grep -q 'learning_rate is .* all ranks need the same' err.0 || wrong 'other options: not said'
  RANK_1_ADDS=

  # The launcher starts another number of ranks than the option says.
  [ -z "$launcher" ] || {
    start 2 --steps 1 $arrays --ranks 3
    fails 'an option that differs from the launcher'
    grep -q '3 ranks were asked for, and 2 were started' err.0 || wrong 'an option that differs: not said'
  }

  # Ranks that do not meet say why.
  [ "$transport" != gloo ] || {
    alone() { # SENTENCE ARGS...: rank 0 of 2 must be refused with this sentence
      sentence=$1
      shift
      ! "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 --steps 1 $arrays --ranks 2 --rank 0 \
        --rendezvous "$@" >log 2>err.0 || wrong "'$sentence': it trained"
      grep -q "$sentence" err.0 || wrong "'$sentence': not said"
    }
    alone 'another session has met there' "$place"
    alone 'rank 1 did not come' "$(mktemp -d -p "$work")" --comm-timeout 1
    RANK_1_ADDS='--ranks 3'
    start 2 --steps 1 $arrays
    fails 'another number of ranks'
    grep -q 'rank 1 was started as one of 3 ranks and rank 0 as one of 2' err.0 || wrong 'another number: not said'
    RANK_1_ADDS=
  }

  # spares STEP WHAT: checks that the last run, spared.onnx and the checkpoints in `spared`, ended after this step with
  # its weights.
  spares() {
    fails "$2"
    grep -q "saved after step $1: spared, spared.onnx\$" err.0 || wrong "$2: nothing was saved"
    [ "$(ls -A spared)" = "step-$(printf %010d "$1")" ] || wrong "$2: no checkpoint of step $1"
    "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 --steps "$1" --accumulation 3 $arrays \
      --export before.onnx >log
    cmp before.onnx spared.onnx || wrong "$2: not the weights of step $1"
    rm -r spared spared.onnx
  }

  # Rank 0 alone cannot go on. The others must not wait for it, and all write together what the error spares.
  start 3 --steps 1000000 $arrays --metrics /dev/full --save spared --export spared.onnx
  grep -q '/dev/full: No space left' err.0 || wrong 'a full disk: not said'
  spares 1 'a full disk'
  start 3 --steps 1 $arrays --metrics /dev/full --save spared --export spared.onnx
  spares 1 'a full disk after the last step'

  # Label 16777215 of batch 7, the second one, is no class of the model. Rank 1 has this batch, in step 3.
  {
    head -c $((128 + 7 * 2 * 32 * 8 + 8)) "$fixtures/labels.npy"
    printf '\377\377\377\000\000\000\000\000'
    tail -c +$((128 + 7 * 2 * 32 * 8 + 17)) "$fixtures/labels.npy"
  } >bad.npy
  start 3 --steps 1000000 --input "input_ids=$fixtures/input_ids.npy" --input labels=bad.npy --save spared \
    --export spared.onnx
  grep -q 'rank 1 could not begin its call: .*label 16777215' err.0 || wrong 'a bad label: not said'
  spares 2 'a bad label'

  # Rank 1 alone has no space for its part of the second checkpoint. The first must stay, and the second must be gone.
  # MPICH is left out: its own shared memory counts as files, and does not come up within the limit.
  [ "$transport" = mpich ] || {
    start 3 --steps 1 --accumulation 4 $arrays --save short
    succeeds 'a checkpoint'
    [ -s short/step-0000000001/optimizer-00003-of-00003.safetensors ] || wrong 'a checkpoint: no part of rank 2'
    RANK_1_BLOCKS=8
    start 3 --steps 1 --accumulation 4 $arrays --resume short --save short
    fails 'no space on rank 1'
    grep -q 'File too large' err.1 || wrong 'no space on rank 1: not said'
    [ "$(ls -A short)" = step-0000000001 ] || wrong 'no space on rank 1: something is left'
    RANK_1_BLOCKS=
    start 3 --steps 1 --accumulation 4 $arrays --resume short --save short
    succeeds 'the save after it'
  }
fi

# until_killed RANK SIGNAL: starts 3 ranks and sends the signal to one of them after some steps.
until_killed() {
  rm -rf kept got.* pid.*
  (
    start 3 --steps 1000000 $arrays --metrics got.jsonl --save kept --save-every 2 --export got.onnx
    exit $status
  ) &
  job=$! waited=0
  until [ -s got.jsonl ] && [ "$(wc -l <got.jsonl)" -gt 4 ]; do
    waited=$((waited + 1))
    [ "$waited" -lt 300 ] || wrong "$2: no step was taken"
    sleep 0.1
  done
  kill "-$2" "$(cat "pid.$1")"
  status=0
  wait "$job" || status=$?
  fails "$2 to rank $1"
}
# leaves_with STATUS RANK...: checks the exit status of these ranks. Only Gloo's ranks are children of this shell.
leaves_with() {
  expected=$1
  shift
  [ -z "$launcher" ] || return 0
  for rank in "$@"; do
    [ "$(cat "status.$rank")" = "$expected" ] || wrong "rank $rank left with $(cat "status.$rank"), not $expected"
  done
}
# goes_on: checks that training resumes from the newest checkpoint.
goes_on() {
  "$command" train "$fixtures/gpt2-dynamic-opset18.onnx" --threads 1 --steps 1 $arrays --resume kept >log
  grep -q 'goes on after step' log || wrong 'the checkpoint was not taken'
}

until_killed 1 INT
leaves_with 130 0 1 2
last=$(wc -l <got.jsonl)
grep -q "stopped after step $last\$" out.0 || wrong 'INT to rank 1: another last step'
[ -s "kept/step-$(printf %010d "$last")/manifest.json" ] && [ -s got.onnx ] || wrong 'INT to rank 1: no results'
goes_on

until_killed 1 KILL
leaves_with 1 0 2
[ -n "$launcher" ] || grep -q 'rank 1' err.0 || wrong 'KILL to rank 1: rank 0 does not say it'
goes_on
until_killed 0 KILL
leaves_with 1 1 2
for rank in 1 2; do
  [ -n "$launcher" ] || grep -q 'rank [0-2]' err.$rank || wrong "KILL to rank 0: rank $rank does not say it"
done
goes_on
echo "$transport: as expected"
