#!/bin/sh
# Tests evaluation in protrain train: data of its own, also in other shapes, an early end, and which checkpoints stay.
. "$(dirname "$0")/expect.sh"

data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
train() { # ARGS...
  run train "$model" $data --seed 3 "$@"
  leaves_with 0
  quiet
}
# The same 20 rows as 20 batches of one: the headers have equal lengths.
for name in input_ids labels; do
  LC_ALL=C sed 's/(10, 2, 32)/(20, 1, 32)/' "$fixtures/$name.npy" >$name.npy
done
rows="--eval-input input_ids=input_ids.npy --eval-input labels=labels.npy"
steps_with() { sed -n "s/.*\"step\":\([0-9]*\).*\"$1\".*/\1/p" "$2" | tr '\n' ' '; }
value() { sed -n "s/.*\"step\":$2,.*\"$1\":\([-0-9.e]*\).*/\1/p" "$3"; } # KEY STEP FILE
near() { awk -v a="$1" -v b="$2" 'BEGIN {d = a / b - 1; exit !(d < 1e-4 && d > -1e-4)}' || wrong "$1 is not near $2"; }

train --steps 5 $rows --eval-every 2 --metrics with.jsonl --export trained.onnx
[ "$(steps_with eval_loss with.jsonl)" = '2 4 5 ' ] || wrong "expected evaluations after steps 2, 4 and 5"
[ "$(steps_with eval_perplexity with.jsonl)" = '2 4 5 ' ] || wrong "a cross entropy has a perplexity"
near "$(value eval_perplexity 4 with.jsonl)" "$(awk -v a="$(value eval_loss 4 with.jsonl)" 'BEGIN {print exp(a)}')"
prints 'step 2: evaluation loss .*, perplexity .*, the best so far'
train --steps 1 --learning-rate 1e-30 $rows --eval-every 1 --metrics one.jsonl
train --steps 1 --learning-rate 1e-30 $rows --eval-every 1 --metrics two.jsonl --loss mean --loss-output loss --loss-factor 2
near "$(value eval_loss 1 two.jsonl)" "$(awk -v a="$(value eval_loss 1 one.jsonl)" 'BEGIN {print 2 * a}')"
grep -q eval_perplexity one.jsonl || wrong "a cross entropy has a perplexity"
grep -q eval_perplexity two.jsonl && wrong "twice a cross entropy has none"
last=$(value eval_loss 5 with.jsonl)
run eval trained.onnx $data
near "$(sed 's/^loss \([0-9.]*\),.*/\1/' out)" "$last"
train --steps 5 --metrics without.jsonl
bits() { sed 's/.*"loss_bits":"\([0-9a-f]*\)".*/\1/' "$1"; }
[ "$(bits with.jsonl)" = "$(bits without.jsonl)" ] || wrong "evaluation changes training"

# With a rate of 0 the first evaluation is the best. The second one without improvement ends the run.
train --steps 20 --learning-rate 1e-30 $rows --eval-every 2 --patience 2 --metrics early.jsonl --save early
[ "$(wc -l <early.jsonl)" -eq 6 ] || wrong "expected the end after step 6"
prints 'ended after step 6: no evaluation was better than that of step 2'
grep -q '"step":2' early/best.json || wrong "the best evaluation is that of step 2"
[ "$(ls early | tr '\n' ' ')" = 'best.json step-0000000002 step-0000000006 ' ] || wrong "other checkpoints"
# Without a step, the best checkpoint becomes a model. That takes no data.
run train "$model" --steps 0 --resume early/best.json --export best.onnx
leaves_with 0
prints 'wrote the weights after step 2: best.onnx'
train --steps 2 --learning-rate 1e-30 --export two.onnx
cmp best.onnx two.onnx || wrong "the best evaluation was that of step 2"
run eval "$model" $data --resume early/best.json
leaves_with 0
echo '{}' >best.json
refused 1 'best.json: not a file that names the best checkpoint' train "$model" $data --steps 1 --resume best.json
refused 1 'none/best.json: No such file' train "$model" $data --steps 1 --resume none/best.json
# A resumed run knows the best one, and how many evaluations came after it.
train --steps 20 --learning-rate 1e-30 $rows --eval-every 2 --patience 4 --metrics more.jsonl --save early --resume early
[ "$(wc -l <more.jsonl)" -eq 4 ] || wrong "expected the end after step 10"
# A run that was killed between the checkpoint of its best evaluation and best.json leaves best.json.next.
cp -r early late
echo '{"checkpoint":"step-0000000010","step":10,"eval_loss":0.5}' >late/best.json.next
cp -r late ahead
train --steps 1 --resume ahead/best.json --save ahead
grep -q '"eval_loss":0.5' ahead/best.json || wrong "--resume best.json begins at a checkpoint before the best"
train --steps 2 $rows --eval-every 2 --save late --resume late
grep -q '"eval_loss":0.5' late/best.json || wrong "the best evaluation is that of step 10"
[ "$(ls -A late | tr '\n' ' ')" = 'best.json step-0000000002 step-0000000006 step-0000000010 step-0000000012 ' ] ||
  wrong "expected the checkpoints, best.json, and nothing else"
for next in '{"checkpoint":"step-0000000014","step":14,"eval_loss":0.1}' '{"checkp' \
  '{"checkpoint":"step-0000000007","step":7,"eval_loss":0.1}'; do
  echo "$next" >late/best.json.next
  train --steps 1 --save late --resume late
  grep -q '"eval_loss":0.5' late/best.json || wrong "the checkpoint of that evaluation was not complete"
  [ ! -e late/best.json.next ] || wrong "a file of a killed run stays"
done
# With a damaged file the run would keep another checkpoint as the best.
cannot_read() { # SENTENCE
  run train "$model" $data --steps 2 --save early --resume early
  leaves_with 1
  complains "$1"
}
echo '{"step":-4}' >early/best.json
cannot_read 'early/best.json: not a file that names the best checkpoint; it was damaged or edited'
rm early/best.json
mkdir early/best.json
cannot_read 'early/best.json: not a regular file$'
rmdir early/best.json
mkdir early/best.json.next
cannot_read 'early/best.json.next: not a regular file$'

# A batch in which no label counts adds nothing to an evaluation.
for name in input_ids labels; do
  { head -c 128 "$fixtures/$name.npy" | LC_ALL=C sed 's/(10, 2, 32)/(2,  2, 32)/' && tail -c +129 "$fixtures/$name.npy" |
    head -c 512; } >gap.$name.npy
  { head -c 128 "$fixtures/$name.npy" | LC_ALL=C sed 's/(10, 2, 32)/(1,  2, 32)/' && tail -c +129 "$fixtures/$name.npy" |
    head -c 512; } >first.$name.npy
done
tail -c +641 "$fixtures/labels.npy" | head -c 512 >>gap.input_ids.npy
for label in $(seq 64); do printf '\234\377\377\377\377\377\377\377'; done >>gap.labels.npy
{ head -c 128 first.labels.npy && tail -c 512 gap.labels.npy; } >none.labels.npy
evaluate() { # NAME OF LABELS
  run train "$model" $data --steps 3 --eval-input input_ids=$1.input_ids.npy --eval-input labels=$2.labels.npy \
    --eval-every 2 --metrics $2.jsonl --report $2.html
  leaves_with 0
}
evaluate first first
evaluate gap gap
complains '^protrain: warning: evaluation: batch 2 of 2 is left out: none of the targets counts: every label of the batch is ignored'
[ "$(value eval_loss 2 gap.jsonl)" = "$(value eval_loss 2 first.jsonl)" ] || wrong "the batch without labels counts"
evaluate first none
prints 'step 2: evaluation loss nan'
[ "$(grep -c '"eval_loss":null' none.jsonl)" -eq 2 ] || wrong "the evaluation has a loss"
run eval "$model" --input input_ids=gap.input_ids.npy --input labels=gap.labels.npy
leaves_with 0
complains '^protrain: warning: batch 2 of 2 is left out: none of the targets counts'
gap=$(cat out)
run eval "$model" --input input_ids=first.input_ids.npy --input labels=first.labels.npy
[ "$(cat out)" = "$gap" ] || wrong "expected $gap"
# A step whose evaluation fails has its line, because the weights after it are saved.
{
  head -c 136 first.labels.npy
  printf '\377\377\377\000\000\000\000\000'
  tail -c +145 first.labels.npy
} >bad.labels.npy
run train "$model" $data --steps 3 --eval-input input_ids=first.input_ids.npy --eval-input labels=bad.labels.npy \
  --eval-every 2 --metrics bad.jsonl --save bad
leaves_with 1
complains 'label 16777215'
complains 'saved after step 2: bad$'
[ "$(wc -l <bad.jsonl)" -eq 2 ] || wrong "expected the lines of both steps"
# A loss that is not finite does not end the training.
run train "$model" $data --steps 1 --learning-rate 1e30 $rows --metrics broken.jsonl --export broken.onnx
leaves_with 0
complains '^protrain: warning: evaluation: batch 1 of 20: the loss is not finite; .* made the first NaN'
prints 'step 1: evaluation loss nan'
grep -q '"eval_loss":null' broken.jsonl || wrong "the evaluation has a loss"
refused 1 'batch 1 of 10: the loss is not finite' eval broken.onnx $data
refused 1 'no label of these data counts, so there is no loss' eval "$model" --input input_ids=first.input_ids.npy \
  --input labels=none.labels.npy

# The newest two stay, and the best.
train --steps 6 --learning-rate 1e-30 $rows --eval-every 1 --save kept --save-every 1 --keep 2
[ "$(ls -A kept | tr '\n' ' ')" = 'best.json step-0000000001 step-0000000005 step-0000000006 ' ] ||
  wrong "expected the checkpoints of steps 1, 5 and 6"

# Killed at any instant, a run goes on from one of its last checkpoints.
for pause in 0.1 0.3 0.5 0.7 0.9; do
  resume=
  if ls -d killed/step-* >before 2>/dev/null; then resume="--resume killed"; fi
  "$command" train "$model" $data --steps 100000 --save killed --save-every 1 --keep 1 $resume >/dev/null 2>&1 &
  sleep $pause
  while ! ls -d killed/step-* >after 2>/dev/null; do sleep 0.1; done
  kill -9 $!
  wait $! 2>/dev/null
done
run train "$model" $data --steps 1 --save killed --keep 1 --resume killed
leaves_with 0
[ "$(ls -A killed | wc -l)" -eq 1 ] || wrong "expected one checkpoint, and nothing that killed runs left"

refused 2 'keep needs --save' train "$model" $data --steps 1 --keep 1
refused 2 'need --eval-input' train "$model" $data --steps 1 --eval-every 1
refused 2 "^protrain: --eval-input wants NAME=FILE.npy, .* not 'labels.npy'" train "$model" $data --steps 1 --eval-input labels.npy
refused 2 'needs --eval-every' train "$model" $data --steps 1 $rows --patience 1
refused 2 'no data for input_ids: give --eval-input input_ids=FILE.npy' train "$model" $data --steps 1 --eval-input labels=labels.npy
