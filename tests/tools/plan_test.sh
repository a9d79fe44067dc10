#!/bin/sh
# Tests protrain plan and profile: text output, JSON, a picture, and files that other subcommands take.
. "$(dirname "$0")/expect.sh"

dims='--dim batch=2 --dim sequence=32'

# shellcheck disable=SC2086
run plan "$model" $dims --hardware rtx3090
leaves_with 0
quiet
prints 'on rtx3090, fp32'
prints 'step [0-9.]* ms, [0-9]* tokens/s; device [0-9.]* MiB, host 0 B, disk 0 B'
prints 'chunks [0-9]*: persist [0-9]*, buffers [0-9]*, host [0-9]*, updated on the device [0-9]*; blocks '
prints 'The bottleneck is'

# shellcheck disable=SC2086
run plan "$model" $dims --hardware rtx3090 --mode eval
leaves_with 0
quiet
prints 'evaluation [0-9.]* [a-z]*, [0-9]* tokens/s; device [0-9.]* [KM]iB, host 0 B, disk 0 B'
prints 'chunks [0-9]*: persist [0-9]*, buffers [0-9]*, host [0-9]*$'
if grep -Eq 'step|optimizer|updated|backward' out; then wrong "an evaluation has no step"; fi

run plan "$fixtures/objectives/embeddings.onnx" --loss cross_entropy --dim batch=2 --hardware rtx3090
leaves_with 0
prints 'step [0-9.]* [a-z]*, [0-9]* samples/s;'

# Without --hardware this machine is measured. The command says that dimensions without --dim are assumed.
run plan "$model"
leaves_with 0
complains 'dim batch=2 is assumed'
prints 'tokens/s'

# shellcheck disable=SC2086
run plan "$model" $dims --hardware a100-80gb --precision bf16 --device-memory 400MiB --json --picture memory.svg \
  --save-plan plan.json
leaves_with 0
quiet
for key in feasible n_chunk n_persist n_buffer n_block n_swap n_checkpoint n_selective step_seconds tokens_per_second \
  device_peak_bytes host_peak_bytes disk_bytes search_seconds explanation would_fit; do
  prints "\"$key\":"
done
if python3 -c '' 2>/dev/null; then
  python3 - 2>err <<'END_OF_PYTHON' || wrong "the files are not as they should be"
import json
import xml.etree.ElementTree as tree

plan = json.load(open("out"))
assert plan["feasible"] is True and plan["hardware"] == "a100-80gb" and plan["precision"] == "bf16"
assert json.load(open("plan.json")) == plan["plan"]
page = tree.parse("memory.svg").getroot()
assert page.tag == "{http://www.w3.org/2000/svg}svg", page.tag
words = " ".join(page.itertext())
for word in ("device", "weights", "optimizer"):
    assert word in words, word
END_OF_PYTHON
else
  echo "no python3: JSON and picture are not read back"
fi

# Training can follow a saved plan.
# shellcheck disable=SC2086
run plan "$model" $dims --save-plan here.json
leaves_with 0
run train "$model" --steps 2 --plan here.json --input input_ids="$fixtures/input_ids.npy" \
  --input labels="$fixtures/labels.npy"
leaves_with 0
quiet
prints 'step 2/2 '

# If nothing fits, the command says what would fit, and exits with 1. The same holds with --json.
# shellcheck disable=SC2086
run plan "$model" $dims --hardware rtx3090 --device-memory 64KiB
leaves_with 1
quiet
prints 'Nothing fits'
prints 'device_memory='
# shellcheck disable=SC2086
run plan "$model" $dims --hardware rtx3090 --device-memory 64KiB --json
leaves_with 1
prints '"feasible": false'

# The output of profile is a file for --hardware.
# shellcheck disable=SC2086
run profile "$model" $dims
leaves_with 0
quiet
cp out machine.json
prints '"kernels":'
# shellcheck disable=SC2086
run plan "$model" $dims --hardware machine.json
leaves_with 0
quiet

# shellcheck disable=SC2086
refused 1 'rtx3090, a100-80gb, h100-80gb, h200' plan "$model" $dims --hardware rtx4090
echo '{"device_memroy": 1}' >machine.json
# shellcheck disable=SC2086
refused 1 "did you mean 'device_memory'" plan "$model" $dims --hardware machine.json
# shellcheck disable=SC2086
refused 1 'only this machine' profile "$model" $dims --hardware rtx3090
# shellcheck disable=SC2086
refused 1 'this machine' train "$model" --steps 1 --hardware rtx3090 --input input_ids="$fixtures/input_ids.npy" \
  --input labels="$fixtures/labels.npy"
refused 1 'no-such.onnx' plan no-such.onnx
refused 2 'MODEL' plan
# shellcheck disable=SC2086
refused 1 'no/such: No such file or directory' plan "$model" $dims --hardware rtx3090 --picture no/such/folder.svg
# shellcheck disable=SC2086
refused 1 'both --picture and --save-plan would write it' plan "$model" $dims --picture one --save-plan ./one
