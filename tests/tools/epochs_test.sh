#!/bin/sh
# Tests --epochs and --shuffle: every window once an epoch, in an order that the seed and the epoch give, also in runs
# that stop and resume. With a learning rate of 0, a step's loss tells its window.
. "$(dirname "$0")/expect.sh"

# 20 windows of 16 tokens, and an end that is no whole window.
iconv -f ISO-8859-1 -t UTF-16LE /usr/share/common-licenses/GPL-3 | tail -c +4001 | head -c 650 >tokens.bin
train() { # ARGS...
  run train "$model" --tokens tokens.bin --batch 1 --sequence 16 --labels same --learning-rate 1e-30 "$@"
  leaves_with 0
  quiet
}
bits() { sed 's/.*"loss_bits":"\([0-9a-f]*\)".*/\1/' "$1"; }
sorted() { bits "$1" | sort; }

train --epochs 1 --metrics plain.jsonl
[ "$(wc -l <plain.jsonl)" -eq 20 ] || wrong "an epoch has 20 windows"
[ "$(sorted plain.jsonl | uniq | wc -l)" -eq 20 ] || wrong "the windows of this test have different losses"
train --epochs 2 --shuffle 5 --metrics two.jsonl
head -20 two.jsonl >first.jsonl
tail -20 two.jsonl >second.jsonl
for epoch in first second; do
  [ "$(sorted $epoch.jsonl)" = "$(sorted plain.jsonl)" ] || wrong "the $epoch epoch does not have every window once"
  [ "$(bits $epoch.jsonl)" != "$(bits plain.jsonl)" ] || wrong "the $epoch epoch has the order of the file"
done
[ "$(bits first.jsonl)" != "$(bits second.jsonl)" ] || wrong "both epochs have one order"
train --epochs 1 --shuffle 6 --metrics other.jsonl
[ "$(bits first.jsonl)" != "$(bits other.jsonl)" ] || wrong "another seed gives the same order"

train --steps 13 --shuffle 5 --metrics parts.jsonl --save parts
train --epochs 2 --shuffle 5 --metrics parts.jsonl --save parts --resume parts
[ "$(bits parts.jsonl)" = "$(bits two.jsonl)" ] || wrong "the resumed run has another order"
train --epochs 2 --shuffle 5 --save parts --resume parts
[ "$(ls parts | tail -1)" = step-0000000040 ] || wrong "there is nothing left to do"
prints 'nothing is left to do: the run ends with step 40'
train --until-step 45 --shuffle 5 --save parts --resume parts
[ "$(ls parts | tail -1)" = step-0000000045 ] || wrong "the run does not end with step 45"
train --until-step 45 --shuffle 5 --save parts --resume parts
prints 'nothing is left to do: the run ends with step 45'
# Steps count as if they all had the batch of this run.
run train "$model" --tokens tokens.bin --batch 2 --sequence 16 --labels same --epochs 4 --shuffle 5 --resume parts
leaves_with 0
prints 'nothing is left to do: the run ends with step 40'

# Six windows to a step: 20 windows need four steps. Arrays are shuffled by their slices, all alike.
run train "$model" --tokens tokens.bin --batch 3 --sequence 16 --labels same --accumulation 2 --epochs 1 --shuffle 5 \
  --metrics large.jsonl
leaves_with 0
[ "$(wc -l <large.jsonl)" -eq 4 ] || wrong "expected four steps"
arrays="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
for shuffle in "" "--shuffle 1"; do
  run train "$model" $arrays --learning-rate 1e-30 --epochs 1 $shuffle --metrics "arrays$shuffle.jsonl"
  leaves_with 0
done
[ "$(sorted arrays.jsonl)" = "$(sorted 'arrays--shuffle 1.jsonl')" ] || wrong "an epoch has every slice once"
[ "$(bits arrays.jsonl)" != "$(bits 'arrays--shuffle 1.jsonl')" ] || wrong "the slices are not shuffled"

# Several files are one. With weights they take turns: of four windows three are the first file's.
head -c 320 tokens.bin >a.bin
tail -c +321 tokens.bin >b.bin
mix() { # ARGS...
  run train "$model" --batch 1 --sequence 16 --labels same --learning-rate 1e-30 "$@"
  leaves_with 0
}
mix --tokens a.bin --tokens b.bin --epochs 1 --metrics joined.jsonl
[ "$(bits joined.jsonl)" = "$(bits plain.jsonl)" ] || wrong "two halves are not the whole file"
head -10 plain.jsonl >of_a.jsonl
mix --tokens a.bin=3 --tokens b.bin=1 --steps 40 --shuffle 5 --metrics mixed.jsonl
bits of_a.jsonl >a.txt
for four in 1 2 3 4 5 6 7 8 9 10; do
  [ "$(bits mixed.jsonl | head -$((4 * four)) | tail -4 | grep -c -F -f a.txt)" -eq 3 ] || wrong "other shares in four"
done
[ "$(sorted mixed.jsonl | uniq | wc -l)" -eq 20 ] || wrong "some windows never come"
[ "$(sorted mixed.jsonl | grep -F -f a.txt | uniq -c | awk '$1 == 3' | wc -l)" -eq 10 ] || wrong "windows come unequally often"
mix --tokens a.bin=3 --tokens b.bin=1 --steps 13 --shuffle 5 --metrics twice.jsonl --save mixed
mix --tokens a.bin=3 --tokens b.bin=1 --steps 27 --shuffle 5 --metrics twice.jsonl --save mixed --resume mixed
[ "$(bits twice.jsonl)" = "$(bits mixed.jsonl)" ] || wrong "the resumed mixture has another order"
mix --tokens a.bin=1.5e308 --tokens b.bin=0.5e308 --steps 40 --shuffle 5 --metrics huge.jsonl
[ "$(bits huge.jsonl)" = "$(bits mixed.jsonl)" ] || wrong "weights whose sum is no number have other shares"
few="$model --batch 1 --sequence 16 --labels same --tokens a.bin=3"
refused 2 'no common epoch' train $few --tokens b.bin=1 --epochs 1
refused 2 'no common epoch' train "$model" --tokens a.bin --eval-tokens b.bin=1 --batch 1 --sequence 16 --labels same --steps 1
refused 2 'or none' train $few --tokens b.bin --steps 1
refused 2 'above 0' train $few --tokens b.bin=0 --steps 1
refused 2 'less than a thousandth' train $few --tokens b.bin=1e-5 --steps 1

# The largest numbers are no end. An evaluation ends these runs.
ends="--learning-rate 0 --eval-tokens tokens.bin --eval-every 1 --patience 1 --save endless"
for many in "--epochs 18446744073709551615" "--steps 18446744073709551615 --resume endless"; do
  run train "$model" --tokens tokens.bin --batch 1 --sequence 16 --labels same $many $ends
  leaves_with 0
  prints 'ended after step'
done

refused 2 'is required, or --until-step, or --epochs' train "$model" $arrays
refused 2 'excludes' train "$model" $arrays --steps 1 --epochs 1
