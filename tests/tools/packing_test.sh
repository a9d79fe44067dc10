#!/bin/sh
# Tests --separator: documents of a token file are packed into windows, have the loss that they have alone, and come in
# the same order in a run that stops and resumes. Lines of a text are the documents; with a learning rate of 1e-30 a
# loss tells its window.
. "$(dirname "$0")/expect.sh"

iconv -f ISO-8859-1 -t UTF-16LE /usr/share/common-licenses/GPL-3 | tail -c +4001 | head -c 8000 >lines.bin
train() { # TOKENS ARGS...
  tokens=$1
  shift
  run train "$model" --tokens "$tokens" --separator 10 --batch 1 --sequence "${length:-64}" --learning-rate 1e-30 "$@"
  leaves_with 0
  quiet
}
bits() { sed 's/.*"loss_bits":"\([0-9a-f]*\)".*/\1/' "$1"; }
loss() { sed 's/.*"loss":\([0-9.e-]*\),.*/\1/' "$1"; }

# Three lines of 21, 9 and 30 tokens in one window, and each in one of its own. The last has no separator.
for part in 'a 20' 'b 8' 'c 30'; do
  set -- $part
  head -c $(($2 * 2)) /usr/share/common-licenses/GPL-3 | tr '\n' ' ' | head -c "$2" |
    iconv -f ISO-8859-1 -t UTF-16LE >"$1.bin"
  [ "$1" = c ] || printf '\n\0' >>"$1.bin"
done
cat a.bin b.bin c.bin >abc.bin
for part in a b abc; do train $part.bin --labels same --steps 1 --metrics $part.jsonl; done
prints '3 documents in 1 windows'
run train "$model" --tokens c.bin --batch 1 --sequence 30 --learning-rate 1e-30 --labels same --steps 1 --metrics c.jsonl
leaves_with 0
awk -v a="$(loss a.jsonl)" -v b="$(loss b.jsonl)" -v c="$(loss c.jsonl)" -v all="$(loss abc.jsonl)" 'BEGIN {
  mean = (a * 20 + b * 8 + c * 29) / 57
  exit !(all / mean > 1 - 1e-6 && all / mean < 1 + 1e-6) }' || wrong "packed documents have another loss than alone"

train lines.bin --labels same --epochs 2 --shuffle 3 --metrics whole.jsonl --eval-tokens abc.bin --eval-every 20
steps=$(wc -l <whole.jsonl)
[ "$(bits whole.jsonl | sort | uniq -c | awk '$1 != 2' | wc -l)" -eq 0 ] || wrong "each window comes once an epoch"
grep -q '"eval_loss":' whole.jsonl || wrong "evaluations are packed too"
train lines.bin --labels same --steps 7 --shuffle 3 --metrics parts.jsonl --save parts
train lines.bin --labels same --epochs 2 --shuffle 3 --metrics parts.jsonl --save parts --resume parts
[ "$(bits parts.jsonl)" = "$(bits whole.jsonl)" ] || wrong "the resumed run has another order"

# A document longer than a window is cut into pieces, and counts once.
documents=$(iconv -f UTF-16LE -t UTF-8 lines.bin | grep -c '')
for length in 24 64; do
  train lines.bin --labels same --steps 2
  prints "^$documents documents in"
done
refused 1 '--separator 9999: no file of --tokens holds this token' train "$model" --tokens lines.bin \
  --separator 9999 --labels same --batch 1 --sequence 64 --steps 1

refused 2 '--separator needs --tokens' train "$model" --separator 10 --steps 1 \
  --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy"
run check "$fixtures/families/bert.torchscript13.onnx" --packed positions
leaves_with 1
prints 'documents cannot be packed'
