#!/usr/bin/env python3
"""Is the figure of a refusal the smallest budget that works?

    bench/refusal.py PROTRAIN FIXTURES [--large MODEL.onnx] [--directory /var/tmp]

FIXTURES holds the small models of tests/fixtures; --large names GPT-2 124M with its weights beside it, which adds two
pairs. Checks three things for each pair of a model and a shape: a budget far too small is refused with a figure N, 1 %
less than N is refused with the same N, and with N itself a step trains and stays within N. Prints one line per pair,
and the commands of each failure. Exits with 1 if there was any. Results: bench/results/refusal.json"""
import argparse
import json
import os
import shlex
import sys
import tempfile

import support

# Options for the budgets of a pair. One budget of each row is far too small: in "memory" the only one, in "apart" the
# device's, in "host" the host's, in "disk" the disk's. DEVICE is replaced by an ample budget.
WAYS = {"memory": ["--memory", "64KiB"], "apart": ["--device-memory", "64KiB", "--host-memory", "1GiB"],
        "host": ["--device-memory", "DEVICE", "--host-memory", "64KiB"],
        "disk": ["--memory", "DEVICE", "--disk-memory", "64KiB"]}
CLIP, TWICE, THRICE = ["--clip-norm", "1"], ["--accumulation", "2"], ["--accumulation", "3"]
# model, batch, sequence, the key in WAYS, whether there is a disk, further options
PAIRS = [
    ("gpt2-static-opset18", 2, 32, "memory", False, []),
    ("gpt2-dynamic-opset18", 1, 8, "memory", False, []),
    ("gpt2-dynamic-opset18", 8, 64, "memory", True, []),
    ("gpt2-dynamic-opset23", 4, 32, "apart", False, []),
    ("gpt2-dynamic-opset23", 16, 64, "memory", True, CLIP),
    ("gpt2-dynamic-opset23", 64, 64, "memory", False, TWICE),
    ("opt-static-opset18", 2, 32, "memory", True, []),
    ("opt-dynamic-opset18", 3, 17, "memory", False, []),
    ("opt-dynamic-opset18", 32, 64, "apart", True, CLIP),
    ("opt-dynamic-opset23", 1, 64, "host", False, []),
    ("opt-dynamic-opset23", 5, 48, "memory", True, THRICE),
    ("llama-static-opset18", 2, 32, "apart", False, []),
    ("llama-dynamic-opset18", 1, 128, "memory", False, []),
    ("llama-dynamic-opset18", 16, 128, "memory", True, []),
    ("llama-dynamic-opset23", 128, 64, "memory", True, []),
    ("llama-dynamic-opset23", 4, 256, "apart", False, CLIP),
    ("llama-dynamic-opset23", 7, 33, "host", True, []),
    ("mistral-static-opset18", 2, 32, "memory", True, TWICE),
    ("mistral-dynamic-opset18", 2, 100, "memory", False, []),
    ("mistral-dynamic-opset18", 24, 64, "apart", True, []),
    ("mistral-dynamic-opset23", 1, 512, "disk", True, []),
    ("mistral-dynamic-opset23", 6, 40, "host", False, TWICE),
    ("retention-dynamic-opset18", 1, 16, "memory", False, []),
    ("retention-dynamic-opset18", 8, 64, "memory", True, CLIP),
    ("retention-dynamic-opset18", 32, 32, "apart", False, []),
    ("retention-dynamic-opset18", 3, 128, "memory", True, ["--accumulation", "4"]),
    ("dropout-gpt", 2, 32, "memory", False, []),
    ("dropout-gpt", 16, 64, "memory", True, CLIP + TWICE)]
LARGE = [(1, 64, "memory", True, []), (2, 128, "memory", False, [])]


class Pair:
    def __init__(self, args, folder, row, model):
        name, batch, sequence, self.way, disk, more = row
        self.args, self.model, self.folder, self.more = args, model, folder, list(more)
        self.about = {"model": name, "batch": batch, "sequence": sequence, "disk": disk, "options": more}
        tokens = os.path.join(folder, "tokens.bin")
        support.write_tokens(tokens, 4 * batch * sequence, 500)
        self.more += ["--tokens", tokens, "--batch", str(batch), "--sequence", str(sequence), "--labels", "same"]
        if disk:
            self.more += ["--offload-dir", args.directory]
        self.commands = []

    def train(self, budgets):
        """Takes one step under `budgets`. Returns the exit status, figure and key of the refusal or None, the peak
        bytes or None, and the last line of stderr."""
        metrics = os.path.join(self.folder, "metrics.jsonl")
        if os.path.exists(metrics):
            os.remove(metrics)
        words = [self.args.protrain, "train", self.model, "--steps", "1", "--metrics", metrics] + self.more
        for key, value in budgets.items():
            words += ["--" + key.replace("_", "-"), str(value)]
        self.commands.append(shlex.join(words))
        done = support.run(words)
        found = support.REFUSAL.search(done.stderr)
        peaks = None
        if done.returncode == 0:
            line = json.loads(open(metrics).readlines()[-1])
            peaks = (line["device_peak_bytes"], line["host_peak_bytes"])
        return done.returncode, found and (int(found[1]), found[2]), peaks, support.last_line(done.stderr)

    def first_budgets(self):
        """The budgets of the first, refused run. DEVICE stands for a quarter more than the device needs."""
        words = WAYS[self.way]
        budgets = {key[2:].replace("-", "_"): value for key, value in zip(words[::2], words[1::2])}
        for key, value in budgets.items():
            if value == "DEVICE":
                ample = {"host_memory": "1GiB"} if self.way == "host" else {}
                refusal = self.train({key: "64KiB", **ample})[1]
                budgets[key] = refusal[0] * 5 // 4
        return budgets

    def check(self):
        """A row of the results; "wrong" says what is wrong."""
        budgets = self.first_budgets()
        status, refusal, _, text = self.train(budgets)
        row = dict(self.about, budgets={k: v for k, v in budgets.items()}, wrong="")
        if status != 1 or refusal is None:
            row["wrong"] = f"far too small, and not refused with a figure: exit {status}, {text}"
            return row
        figure, key = refusal
        row.update(key=key, smallest=figure)
        status, again, peaks, text = self.train(dict(budgets, **{key: figure * 99 // 100}))
        if status != 1 or again != refusal:
            row["wrong"] = f"1 % under {key}={figure}: exit {status}, {again or peaks}, {text}"
            return row
        status, _, peaks, text = self.train(dict(budgets, **{key: figure}))
        if status != 0:
            row["wrong"] = f"{key}={figure} does not train: exit {status}, {text}"
            return row
        row.update(device_peak_bytes=peaks[0], host_peak_bytes=peaks[1])
        if peaks["host" in key] > figure and key != "disk_memory":
            row["wrong"] = f"{key}={figure}, and the step takes {peaks}"
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("fixtures")
    parser.add_argument("--large")
    parser.add_argument("--directory", default="/var/tmp")
    args = parser.parse_args()
    pairs = [(row, os.path.join(args.fixtures, row[0] + ".onnx")) for row in PAIRS]
    if args.large:
        name = os.path.splitext(os.path.basename(args.large))[0]
        pairs += [((name,) + row, args.large) for row in LARGE]
    rows = []
    for row, model in pairs:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(args, folder, row, model)
            rows.append(pair.check())
        done = rows[-1]
        figure = f"{done['smallest']} of {done['key']}" if "key" in done else "-"
        print(f"{'WRONG' if done['wrong'] else 'ok':5} {done['model']:26} {done['batch']:3}x{done['sequence']:<4} "
              f"{'disk' if done['disk'] else '    '} {' '.join(done['options']):32} {figure}", flush=True)
        if done["wrong"]:
            done["commands"] = pair.commands
            print(f"      {done['wrong']}\n      " + "\n      ".join(pair.commands), flush=True)
    wrong = sum(bool(row["wrong"]) for row in rows)
    print(f"{len(rows)} pairs, {wrong} wrong")
    support.save("refusal", {"pairs": len(rows), "wrong": wrong, "rows": rows})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
