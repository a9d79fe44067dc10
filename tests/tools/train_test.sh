#!/bin/sh
# Tests protrain train: input from arrays and token files, metrics, an exported model, and a loss that falls.
. "$(dirname "$0")/expect.sh"

field() { sed "$2!d;s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/" metrics.jsonl; } # NAME LINE
falls() { awk -v a="$(field loss 1)" -v b="$(field loss "$1")" 'BEGIN {exit !(b < a)}' || wrong "the loss does not fall"; }

run train "$model" --steps 10 --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" \
  --metrics metrics.jsonl --export trained.onnx --seed 1
leaves_with 0
quiet
prints ' [0-9.]* k parameters in [0-9]* tensors; '
prints 'step 1/10 '
prints 'step 10/10 '
[ "$(wc -l <metrics.jsonl)" -eq 10 ] || wrong "expected ten lines of metrics"
for name in step loss grad_norm seconds tokens_per_second device_peak_bytes host_peak_bytes loss_bits grad_norm_bits; do
  [ -n "$(field $name 10)" ] || wrong "no $name in the metrics"
done
[ "$(field step 10)" = 10 ] || wrong "step 10 is the tenth"
[ "$(field host_peak_bytes 1)" = 0 ] || wrong "everything lies in the device arena"
echo "$(field loss_bits 1)$(field grad_norm_bits 1)" | grep -qxE '[0-9a-f]{16}' || wrong "bits are 8 hex digits each"
falls 10
cut -d, -f1-3,8- metrics.jsonl | sed 's/"[a-z]*_peak_bytes":[0-9]*,//g' >first.txt

# The same run again gives the same bits. Here one --input has several inputs, and the model comes last.
run train --steps 10 --metrics metrics.jsonl --seed 1 --input input_ids="$fixtures/input_ids.npy" \
  labels="$fixtures/labels.npy" "$model"
leaves_with 0
cut -d, -f1-3,8- metrics.jsonl | sed 's/"[a-z]*_peak_bytes":[0-9]*,//g' >second.txt
cmp -s first.txt second.txt || wrong "the second run has other losses"

# The exported model must start with a lower loss, because the first run has trained it.
run train trained.onnx --steps 1 --input input_ids="$fixtures/input_ids.npy" --input labels="$fixtures/labels.npy" \
  --metrics metrics.jsonl
leaves_with 0
awk -v a="$(field loss 1)" 'BEGIN {exit !(a < 6)}' || wrong "the exported model has not been trained"

# A raw token file and one with llm.c's header must give the same losses.
iconv -f ISO-8859-1 -t UTF-16LE /usr/share/common-licenses/GPL-3 >raw.bin
count=$(($(wc -c <raw.bin) / 2))
bytes4() { for shift in 0 8 16 24; do printf "\\$(printf %03o $((($1 >> shift) & 255)))"; done; }
{ bytes4 20240520 && bytes4 1 && bytes4 $count && head -c 1012 /dev/zero && cat raw.bin; } >llmc.bin
for file in raw.bin llmc.bin; do
  run train "$model" --steps 20 --tokens $file --batch 4 --sequence 32 --labels same --metrics metrics.jsonl
  leaves_with 0
  falls 20
  sed 's/.*"loss_bits":"\([0-9a-f]*\)".*/\1/' metrics.jsonl >$file.bits
done
cmp -s raw.bin.bits llmc.bin.bits || wrong "the header changes the losses"

run train "$model" --steps 2 --tokens raw.bin --dim batch=4 --dim sequence=32 --labels next --metrics metrics.jsonl
leaves_with 0
[ "$(field loss_bits 1)" != "$(head -1 raw.bin.bits)" ] || wrong "--labels next makes no difference"

# The same tokens as uint32, raw and with llm.c's header.
iconv -f ISO-8859-1 -t UTF-32LE /usr/share/common-licenses/GPL-3 >wide.bin
{ bytes4 20240801 && bytes4 7 && bytes4 $count && head -c 1012 /dev/zero && cat wide.bin; } >llmc32.bin
for file in wide.bin llmc32.bin; do
  run train "$model" --steps 20 --tokens $file --token-type uint32 --batch 4 --sequence 32 --metrics metrics.jsonl
  leaves_with 0
  sed 's/.*"loss_bits":"\([0-9a-f]*\)".*/\1/' metrics.jsonl >$file.bits
  cmp -s raw.bin.bits $file.bits || wrong "the width changes the losses"
done

# A file that holds the batch of a single step is used again for every step.
{ head -c 128 "$fixtures/labels.npy" | LC_ALL=C sed 's/(10, /(1,  /' && tail -c +129 "$fixtures/labels.npy" | head -c 512; } >one.npy
run train "$model" --steps 3 --input input_ids="$fixtures/input_ids.npy" --input labels=one.npy
leaves_with 0
