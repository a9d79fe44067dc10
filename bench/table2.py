#!/usr/bin/env python3
"""Makes the ProTrain paper's Table 2 for one device from plans: which GPT-2s train on an RTX 3090 and on an A100.

    bench/table2.py PROTRAIN MODELS_DIR [--disk 2TB]

MODELS_DIR holds gpt2-{34,37,40,75,87}b.onnx, without weights. Sequence 1024, batch 1, bf16. Nothing trains: the
machines are those of `protrain plan --hardware`, with the memories of the paper's testbeds. Needs the onnx package
(PyPI) for models of other depth; start it with a Python that has it.

Prints for each model whether it fits, how much memory the chosen plan leaves free, and the least memory that each tier
must have. The script tries that least, and 1 % less. Then it prints the most layers of a width that fit, with and
without a disk, and how long the search takes. `protrain check` confirms the deepest models. Results:
bench/results/table2.json"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import support
from layers import Stack

SHAPE = ["--dim", "batch=1", "--dim", "sequence=1024", "--precision", "bf16"]
MODELS = (("rtx3090", ("gpt2-34b", "gpt2-37b", "gpt2-40b")), ("a100-80gb", ("gpt2-75b", "gpt2-87b")))
DEEPEN = (("rtx3090", "gpt2-34b", 34), ("a100-80gb", "gpt2-75b", 75))  # the last: the paper's largest, in billions
SEARCHES = (("rtx3090", "gpt2-34b"), ("rtx3090", "gpt2-40b"), ("a100-80gb", "gpt2-75b"), ("a100-80gb", "gpt2-87b"))
TIERS = (("device_memory", "device_peak_bytes"), ("host_memory", "host_peak_bytes"))
STATE = 12  # bytes an element: bfloat16 weights and the lower halves of the masters, two moments in float32
INTEGERS = ("n_chunk", "n_persist", "n_buffer", "n_host", "n_block", "n_swap", "n_checkpoint", "n_selective", "chunk_bytes", "n_device_update")


def flag(key):
    return "--" + key.replace("_", "-")


class Table:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def model(self, name):
        return os.path.join(self.args.models, name + ".onnx")

    def plan(self, model, hardware, more=()):
        return support.plan(self.args.protrain, model, ["--hardware", hardware] + SHAPE + list(more))

    def least(self, model, hardware, key):
        """The least bytes of one tier, with all of the other tier, by the figure of a refusal; and whether that figure
        and 1 % less of it fit."""
        refused = self.plan(model, hardware, [flag(key), "64MiB"])
        change = next((c["options"] for c in refused["would_fit"] if key in c["options"]), None)
        if refused["feasible"] or change is None or len(change) > 1:
            return None
        figure = int(change[key])
        return {"bytes": figure, "fits": self.plan(model, hardware, [flag(key), str(figure)])["feasible"],
                "fits_one_per_cent_less": self.plan(model, hardware, [flag(key), str(figure * 99 // 100)])["feasible"]}

    def row(self, name, hardware):
        planned = self.plan(self.model(name), hardware)
        row = {"model": name, "hardware": hardware, "feasible": planned["feasible"],
               "elements": Stack(self.model(name)).elements(planned["n_block"]), "layers": planned["n_block"],
               "plan": {key: planned[key] for key in INTEGERS}, "step_seconds": planned["step_seconds"],
               "tokens_per_second": planned["tokens_per_second"],
               "would_fit": [change["text"] for change in planned["would_fit"]]}
        row["state_bytes"] = row["elements"] * STATE
        for key, peak in TIERS:
            budget = planned["budget"][key]
            row[key] = {"budget": budget, "plan": planned[peak], "least": self.least(self.model(name), hardware, key)}
        self.tell(row)
        return row

    @staticmethod
    def tell(row):
        print(f"{row['model']} on {row['hardware']}: {row['elements'] / 1e9:.2f} B, {row['layers']} layers, state "
              f"{support.size(row['state_bytes'])}: {'fits' if row['feasible'] else 'does NOT fit'}; "
              f"{row['step_seconds']:.2f} s a step, {row['tokens_per_second']:.1f} tokens/s")
        for key, _ in TIERS:
            tier = row[key]
            text = (f"  {key:13} budget {support.size(tier['budget'])}, plan {support.size(tier['plan'])}, free "
                    f"{share(tier['budget'] - tier['plan'], tier['budget'])}")
            if tier["least"]:
                least = tier["least"]
                verdict = "" if least["fits"] else "; WRONG: does not fit"
                verdict += "; WRONG: 1 % less fits too" if least["fits_one_per_cent_less"] else ""
                text += (f"; least {least['bytes']} ({support.size(least['bytes'])}), free "
                         f"{share(tier['budget'] - least['bytes'], tier['budget'])}{verdict}")
            print(text)
        print(f"  {', '.join(f'{k} {v}' for k, v in row['plan'].items())}")
        for change in row["would_fit"]:
            print(f"  would fit: {change}")
        sys.stdout.flush()

    def check(self, stack, path, layers):
        done = support.run([self.args.protrain, "check", path, "--json"])
        about = json.loads(done.stdout)
        found, expected = (about.get("blocks"), about.get("parameter_elements")), (layers, stack.elements(layers))
        if found != expected:
            raise SystemExit(f"{stack.name} with {layers} layers: check finds {found}, not {expected}")

    def same_as(self, stack, other, hardware):
        """Checks that copies of this model's layers get the same plan as `other`, which was exported at that depth."""
        theirs = self.plan(self.model(other), hardware)
        path = os.path.join(self.folder, "same.onnx")
        stack.write(theirs["n_block"], path)
        ours = self.plan(path, hardware)
        keys = INTEGERS + ("step_seconds", "device_peak_bytes", "host_peak_bytes", "disk_bytes")
        wrong = [key for key in keys if ours[key] != theirs[key]]
        print(f"{stack.name} with {theirs['n_block']} layers is planned {'UNLIKE' if wrong else 'as'} {other} "
              f"{', '.join(wrong)}", flush=True)
        return not wrong

    def deepest(self, stack, hardware, more):
        """The most layers that fit, found by doubling and halving, and their plan."""
        path = os.path.join(self.folder, "deep.onnx")
        tried = {}

        def fits(layers):
            if layers not in tried:
                stack.write(layers, path)
                tried[layers] = self.plan(path, hardware, more)
            return tried[layers]["feasible"]

        fewest = most = stack.count
        while fits(most):
            fewest, most = most, most * 3 // 2
        while not fits(fewest):
            fewest = fewest * 3 // 4
        while most - fewest > 1:
            middle = (fewest + most) // 2
            fewest, most = (middle, most) if fits(middle) else (fewest, middle)
        for layers in (fewest, most):
            stack.write(layers, path)
            self.check(stack, path, layers)
        return fewest, tried[fewest], tried[most]

    def depth_row(self, stack, hardware, more, paper):
        layers, best, over = self.deepest(stack, hardware, more)
        elements = stack.elements(layers)
        row = {"width_of": stack.name, "hardware": hardware, "options": more, "layers": layers, "elements": elements,
               "paper_billions": paper, "step_seconds": best["step_seconds"], "budget": best["budget"],
               "device_peak_bytes": best["device_peak_bytes"], "host_peak_bytes": best["host_peak_bytes"],
               "disk_bytes": best["disk_bytes"], "one_layer_more": [change["text"] for change in over["would_fit"]]}
        free = ", ".join(f"{key} {share(best['budget'][key] - best[peak], best['budget'][key])}"
                         for key, peak in TIERS + (("disk_memory", "disk_bytes"),) if best["budget"][key])
        print(f"{hardware}, width of {stack.name}{', ' + ' '.join(more) if more else ''}: at most {layers} layers, "
              f"{elements / 1e9:.2f} B ({'paper: %d B' % paper if not more else 'the paper has no disk'}); "
              f"{best['step_seconds']:.2f} s a step; free {free}", flush=True)
        for change in row["one_layer_more"][:1]:
            print(f"  one layer more needs {change}", flush=True)
        return row

    def search_row(self, hardware, name):
        seconds = [self.plan(self.model(name), hardware)["search_seconds"] for _ in range(5)]
        median = statistics.median(seconds)
        print(f"search of {name} on {hardware}: {median * 1e3:.0f} ms, median of "
              f"{', '.join(f'{s * 1e3:.0f}' for s in seconds)}", flush=True)
        return {"model": name, "hardware": hardware, "seconds": seconds, "median": median}


def share(part, whole):
    return f"{part} bytes ({part / whole:.2%})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("models")
    parser.add_argument("--disk", default="2TB")
    args = parser.parse_args()
    figures = {"sequence": 1024, "batch": 1, "precision": "bf16", "models": [], "searches": [], "deepest": []}
    with tempfile.TemporaryDirectory() as folder:
        table = Table(args, folder)
        figures["models"] = rows = [table.row(name, hardware) for hardware, names in MODELS for name in names]
        figures["searches"] = [table.search_row(*row) for row in SEARCHES]
        stacks = {name: Stack(table.model(name)) for _, name, _ in DEEPEN}
        same = [table.same_as(stacks[a], b, h) for a, b, h in (("gpt2-34b", "gpt2-40b", "rtx3090"),
                                                               ("gpt2-75b", "gpt2-87b", "a100-80gb"))]
        figures["clones_planned_alike"] = all(same)
        support.save("table2", figures)
        # With a disk hundreds of layers fit, and each plan takes a minute. So these come last.
        for more in ([], ["--disk-memory", args.disk]):
            for hardware, name, paper in DEEPEN:
                figures["deepest"].append(table.depth_row(stacks[name], hardware, more, paper))
                support.save("table2", figures)
    ours = " / ".join(f"{row['elements'] / 1e9:.1f}" for row in figures["deepest"] if not row["options"])
    print(f"ours: {ours} B, paper: {' / '.join(str(paper) for _, _, paper in DEEPEN)} B")
    wrong = [row["model"] for row in rows for key, _ in TIERS if row[key]["least"] and
             (not row[key]["least"]["fits"] or row[key]["least"]["fits_one_per_cent_less"])]
    return 1 if wrong or not all(same) else 0


if __name__ == "__main__":
    sys.exit(main())
