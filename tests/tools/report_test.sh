#!/bin/sh
# Tests protrain train --report. It must write one well-formed page that refers to no other file and has the run's
# numbers.
. "$(dirname "$0")/expect.sh"

python3 -c '' 2>/dev/null || { echo "no python3: the page cannot be read back"; exit 0; }

# The plan uses every queue: chunks on the host and on the disk, a block that swaps and one that recomputes.
echo '{"n_persist": 1, "n_buffer": 2, "n_host": 2, "n_swap": 1, "n_checkpoint": 1, "chunk_bytes": 65536}' >plan.json
data="--input input_ids=$fixtures/input_ids.npy --input labels=$fixtures/labels.npy"
# shellcheck disable=SC2086
run train "$model" --steps 5 $data --plan plan.json --device-memory 1GiB --host-memory 1GiB --offload-dir . \
  --metrics metrics.jsonl --report '<a> & "b".html'
leaves_with 0
quiet

cat >check.py <<'END'
import json, re, sys
import xml.etree.ElementTree as tree

text = open(sys.argv[1]).read()
page = tree.fromstring(text)
assert page.tag.endswith("html"), page.tag
assert not re.search(r"<script|<link|<img|url\(|src=|href=", text), "the page refers to something outside"
lines = [json.loads(line) for line in open("metrics.jsonl")]
for key in ("device_peak_bytes", "host_peak_bytes"):
    assert f"{lines[-1][key]} B" in text, key
words = " ".join(page.itertext())
for word in ("n_persist", "time", "overlap", "device memory", "host memory", "disk", "upload", "weights",
             "optimizer", "activations", "recomputed", "compute idle", "MatMul", "step", "1 to 5"):
    assert word in words, word
svg = "{http://www.w3.org/2000/svg}"
assert len(page.findall(f".//{svg}svg")) == 4, "pictures of loss, learning rate, memory and queues"
line = page.find(f".//{svg}polyline").get("points").split()
assert len(line) == 5, "a point of the loss for each step"
norms = [line["grad_norms"] for line in lines]
assert list(norms[0])[0] == "before" and list(norms[0])[-1] == "after", norms[0]
for step, groups in zip(lines, norms):
    whole = sum(norm**2 for norm in groups.values()) ** 0.5
    assert abs(whole - step["grad_norm"]) < 1e-6 * whole, "the groups' norms are not those of the whole gradient"
for group, norm in norms[-1].items():
    assert f"{group} {norm:.4g}" in words, f"the page has no norm of {group}"
heights = [float(point.split(",")[1]) for point in line]
losses = [line["loss"] for line in lines]
assert sorted(range(5), key=heights.__getitem__) == sorted(range(5), key=losses.__getitem__, reverse=True), "the curve"
END
python3 check.py '<a> & "b".html' >err 2>&1 || wrong "the page is not as it should be"

# Evaluations are a second curve in the picture of the loss, over the same steps and in the same units.
# shellcheck disable=SC2086
run train "$model" --steps 6 $data --eval-input input_ids="$fixtures/input_ids.npy" \
  --eval-input labels="$fixtures/labels.npy" --eval-every 2 --metrics evaluated.jsonl --report evaluated.html
leaves_with 0
quiet
cat >curves.py <<'END'
import json
import xml.etree.ElementTree as tree

svg = "{http://www.w3.org/2000/svg}"
lines = [json.loads(line) for line in open("evaluated.jsonl")]
wanted = [[(line["step"], line[key]) for line in lines if key in line] for key in ("loss", "eval_loss")]
assert [len(curve) for curve in wanted] == [6, 3], wanted
picture = tree.parse("evaluated.html").find(f".//{svg}svg")
words = [text.text for text in picture.iter(f"{svg}text")]
assert "training" in words and "evaluation" in words, words
drawn = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
         for line in picture.iter(f"{svg}polyline")]
assert [len(curve) for curve in drawn] == [6, 3], drawn
pairs = [pair for of, at in zip(wanted, drawn) for pair in zip(of, at)]
for axis in (0, 1):
    # Both axes are linear, so two points tell where all others lie. Places are rounded to a tenth of a pixel.
    numbers, places = ([each[part][axis] for each in pairs] for part in (0, 1))
    low, high = (numbers.index(end(numbers)) for end in (min, max))
    scale = (places[high] - places[low]) / (numbers[high] - numbers[low])
    for number, place in zip(numbers, places):
        assert abs(places[low] + scale * (number - numbers[low]) - place) < 0.15, (axis, number, place)
    assert scale > 0 if axis == 0 else scale < 0, "an axis has the wrong direction"
END
python3 curves.py >err 2>&1 || wrong "the curve of evaluations is not that of the metrics"

# A path that looks like markup.
cp "$model" 'm<&>.onnx'
# shellcheck disable=SC2086
run train 'm<&>.onnx' --steps 1 $data --report plain.html
leaves_with 0
python3 -c 'import xml.etree.ElementTree as t; t.parse("plain.html")' 2>err || wrong "the page is not well-formed"
