#!/bin/sh
# Tests protrain train --save, --save-every and --resume: a resumed run must write the same files as one that never
# stopped.
. "$(dirname "$0")/expect.sh"

train() { # ARGS...
  run train "$model" --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" --seed 3 "$@"
  leaves_with 0
  quiet
}
bits() { sed 's/.*"step":\([0-9]*\).*"loss_bits":"\([0-9a-f]*\)","grad_norm_bits":"\([0-9a-f]*\)".*/\1 \2 \3/' "$1"; }
same_files() { # CHECKPOINT CHECKPOINT
  for file in weights optimizer; do
    cmp "$1/$file.safetensors" "$2/$file.safetensors" || wrong "$1 and $2 differ"
  done
}

train --steps 13 --metrics whole.jsonl --save whole
[ "$(ls whole)" = step-0000000013 ] || wrong "expected one checkpoint, of the last step"

train --steps 7 --metrics first.jsonl --save parts --save-every 3
[ "$(ls parts | tr '\n' ' ')" = 'step-0000000003 step-0000000006 step-0000000007 ' ] || wrong "other steps were saved"
train --steps 6 --metrics second.jsonl --save parts --resume parts
prints 'goes on after step 7'
prints 'step 8/13 '
prints 'step 13/13 '
cat first.jsonl second.jsonl >parts.jsonl
[ "$(bits whole.jsonl)" = "$(bits parts.jsonl)" ] || wrong "the steps after the checkpoint are others"
same_files whole/step-0000000013 parts/step-0000000013

# Resumes from an older checkpoint, given by name. Then saves and resumes a run with several batches in a step.
train --steps 10 --save older --resume parts/step-0000000003
same_files whole/step-0000000013 older/step-0000000013
train --steps 5 --accumulation 3 --save accumulated
train --steps 2 --accumulation 3 --save stopped
train --steps 3 --accumulation 3 --save stopped --resume stopped
same_files accumulated/step-0000000005 stopped/step-0000000005

refused 1 'the seed is 4' train "$model" --steps 1 --resume parts --seed 4 \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
refused 1 '^protrain: c: cannot list it' train "$model" --steps 1 --resume c \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
refused 1 'sgd' train "$model" --steps 1 --resume parts --optimizer sgd \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
printf x | dd of=parts/step-0000000013/weights.safetensors bs=1 seek=50000 conv=notrunc 2>/dev/null
refused 1 'do not match their checksum; the checkpoint before it is parts/step-0000000007' train "$model" --steps 1 \
  --resume parts --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"

# A directory with later checkpoints of another run is refused before any step, and stays as it is. Otherwise --keep
# would remove the new checkpoints, and a later --resume would take the old one.
data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
printf 'kept\n' >kept.jsonl
refused 1 'parts holds step-0000000013 of another run, and this run begins after step 0: .* --resume parts' \
  train "$model" $data --steps 2 --save parts --save-every 1 --keep 1 --metrics kept.jsonl
run train "$model" $data --steps 2 --resume parts/step-0000000003 --save parts --keep 1 --metrics kept.jsonl
leaves_with 1
complains 'and this run begins after step 3: .* or remove the checkpoints after step 3'
[ "$(ls parts | tr '\n' ' ')" = 'step-0000000003 step-0000000006 step-0000000007 step-0000000013 ' ] ||
  wrong "checkpoints of another run are gone"
refused 1 'step-0000000003: is itself a checkpoint; give --save the directory' train "$model" $data --steps 2 \
  --save parts/step-0000000003
grep -q kept kept.jsonl || wrong "the metrics of another run are gone"

# Lines of metrics are appended. One that was cut short does not spoil the next, and steps that are taken again after
# their checkpoint have one line each.
train --steps 2 --metrics cut.jsonl --save cut
train --steps 3 --metrics cut.jsonl --resume cut
printf '{"step":6,"lo' >>cut.jsonl
train --steps 1 --metrics cut.jsonl --resume cut
[ "$(cut -c1-10 cut.jsonl | tr '\n' ' ')" = '{"step":1, {"step":2, {"step":3, ' ] || wrong "other lines than one per step"
printf '{"step":3,"lo' >>cut.jsonl
train --steps 1 --metrics cut.jsonl --save cut --resume cut
[ "$(cut -c1-10 cut.jsonl | tr '\n' ' ')" = '{"step":1, {"step":2, {"step":3, ' ] || wrong "a line was cut short"

# A run that meets checkpoints of another one, which has begun meanwhile, leaves them as they are.
# shellcheck disable=SC2086
env --default-signal=INT "$command" train "$model" $data --steps 1000000 --save shared --metrics shared.jsonl >out 2>err &
child=$!
ran='protrain train, beside another run'
is_begun() { [ -s shared.jsonl ] && mkdir shared/step-0000000002 && : >shared/step-0000000002/manifest.json; }
interrupt_once is_begun
leaves_with 1
complains 'shared now holds step-0000000002 of another run'
[ "$(ls -A shared)" = step-0000000002 ] || wrong "a checkpoint beside those of another run"

# A directory that somebody removes amid the run is made anew.
rows="--eval-input input_ids=$fixtures/input_ids.npy --eval-input labels=$fixtures/labels.npy"
# shellcheck disable=SC2086
"$command" train "$model" $data $rows --steps 100 --save gone --metrics gone.jsonl >out 2>err &
child=$!
ran='protrain train, whose directory is removed'
until [ -s gone.jsonl ] || ! kill -0 $child 2>/dev/null; do sleep 0.05; done
rmdir gone || wrong "there was a checkpoint before the last step"
wait $child
status=$?
leaves_with 0
quiet
[ "$(ls -A gone | tr '\n' ' ')" = 'best.json step-0000000100 ' ] || wrong "the last step was not saved"

# Without its checkpoint the best evaluation does not count any more: the next one is saved, although no better.
# shellcheck disable=SC2086
env --default-signal=INT "$command" train "$model" $data $rows --learning-rate 1e-30 --steps 1000000 --eval-every 1 \
  --save moved >out 2>err &
child=$!
ran='protrain train, whose directory is moved'
is_saved() { [ -e moved/best.json ] || ! kill -0 $child 2>/dev/null; }
until is_saved; do sleep 0.05; done
mv moved away || wrong "there was no evaluation"
interrupt_once is_saved
leaves_with 130
grep -q '"step":1,' away/best.json || wrong "the best evaluation was that of step 1"
best=$(sed -n 's/.*"checkpoint":"\([^"]*\)".*/\1/p' moved/best.json)
[ -e "moved/$best/manifest.json" ] || wrong "expected the checkpoint of a later evaluation"
