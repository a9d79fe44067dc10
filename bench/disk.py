#!/usr/bin/env python3
"""Measures a step whose weights and optimizer state rest on the disk in part: how well do disk and compute overlap?

    bench/disk.py PROTRAIN MODEL.onnx --memory 18GiB --directory DIR [--batch 1] [--sequence 256] [--steps 3] [--rounds 2]
                  [--against PROTRAIN] [--resident] [--name disk] [-- OPTION ...]

Each round trains for some steps on random tokens. The first step does not count; the fastest of the others is the
round's time. Its report gives the seconds in which compute and the disk were busy. The disk is also given the seconds
that the same bytes take when nothing else runs, by the rates of `protrain profile`: the longest of all reads, of all
writes, and of both together. A step cannot take less than the larger of compute's busy seconds and the disk's own
ones. The ratio compares the last step, which the report describes, with that. In every round and in turn, --against
runs another build of the command, and --resident runs ours without a budget. Inputs of the model are input_ids and
labels. Results: bench/results/NAME.json"""
import argparse
import json
import os
import re
import statistics
import sys
import tempfile

import support

MOVE = re.compile(r"^disk\w* \d+ (read|write|swap_in|swap_out) .*?@disk:\d+\+(\d+)")


def union_seconds(bars):
    """Seconds in which at least one of the bars, pairs of begin and end, covers the time."""
    total, end = 0.0, 0.0
    for begin, until in sorted(bars):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.tokens = os.path.join(folder, "tokens.bin")
        support.write_tokens(self.tokens, args.batch * args.sequence * args.steps, 256)
        self.budget = ["--memory", args.memory, "--offload-dir", args.directory]
        self.dims = ["--dim", f"batch={args.batch}", "--dim", f"sequence={args.sequence}"]

    def profile(self, protrain):
        """A folder of its own for each build, because one build may not know what another has measured."""
        return ["--profile-dir", os.path.join(self.folder, "profile" + str(abs(hash(protrain))))]

    def train(self, protrain, budget):
        metrics, report = os.path.join(self.folder, "metrics.jsonl"), os.path.join(self.folder, "report.json")
        words = [protrain, "train", self.args.onnx, "--tokens", self.tokens, "--batch", str(self.args.batch), "--sequence",
                 str(self.args.sequence), "--labels", "same", "--steps", str(self.args.steps), "--metrics", metrics,
                 "--report", report, *self.profile(protrain), *self.args.options, *budget]
        status, peak = support.run_measured(words)
        if status != 0:
            raise SystemExit(f"{protrain} ended with {status}")
        rows = [json.loads(line) for line in open(metrics)]
        told = json.load(open(report))
        disk = [bar for queue, bars in told["queues"].items() if queue.startswith("disk") for bar in bars]
        return {"seconds": [row["seconds"] for row in rows], "loss_bits": rows[-1]["loss_bits"], "peak_bytes": peak,
                "reported": {key: told["measured"][key] for key in ("seconds", "busy_seconds", "stall_seconds")},
                "predicted_seconds": told["predicted"]["seconds"], "disk_busy_seconds": union_seconds(disk)}

    def bytes_moved(self, protrain):
        """Bytes that a step reads from the disk, and that it writes."""
        text = support.run([protrain, "inspect", self.args.onnx, "program", *self.dims, *self.profile(protrain),
                            *self.args.options, *self.budget]).stdout
        moved = [MOVE.match(line) for line in text.splitlines()]
        moved = [(match[1] in ("read", "swap_in"), int(match[2])) for match in moved if match]
        return [sum(count for reads, count in moved if reads == way) for way in (True, False)]

    def rates(self):
        found = json.loads(support.run([self.args.protrain, "profile", self.args.onnx, *self.dims,
                                        *self.profile(self.args.protrain), *self.args.options, *self.budget]).stdout)
        keys = ("disk_read", "disk_write", "disk_both_ways", "compute_beside_disk", "disk_beside_compute")
        return {key: found[key] for key in keys}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    parser.add_argument("--memory", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--against")
    parser.add_argument("--resident", action="store_true")
    parser.add_argument("--name", default="disk")
    for name, default in (("batch", 1), ("sequence", 256), ("steps", 3), ("rounds", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.options = sys.argv[end + 1:]
    if args.steps < 2:
        parser.error("--steps must be at least 2, because the first step does not count")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        contenders = {"ours": (args.protrain, bench.budget)}
        if args.against:
            contenders["against"] = (args.against, bench.budget)
        if args.resident:
            contenders["resident"] = (args.protrain, [])
        rounds = [{name: bench.train(*how) for name, how in contenders.items()} for _ in range(args.rounds)]
        rates = bench.rates()
        moved = {name: bench.bytes_moved(command) for name, (command, budget) in contenders.items() if budget}
    figures = {}
    for name in contenders:
        steps = [min(one[name]["seconds"][1:]) for one in rounds]
        figures[name] = {"step_seconds": steps}
        print(f"{name}: step {statistics.median(steps):.2f} s ({min(steps):.2f} to {max(steps):.2f})")
    for name, (reads, writes) in moved.items():
        alone = max(reads / rates["disk_read"], writes / rates["disk_write"], (reads + writes) / rates["disk_both_ways"])
        compute = [one[name]["reported"]["busy_seconds"]["compute"] for one in rounds]
        last = [one[name]["reported"]["seconds"] for one in rounds]
        ratios = [step / max(busy, alone) for step, busy in zip(last, compute)]
        figures[name] |= {"compute_busy_seconds": compute, "read_bytes": reads, "write_bytes": writes,
                          "disk_alone_seconds": alone, "ratio_to_larger": ratios}
        print(f"{name}: compute {statistics.median(compute):.2f} s; disk alone {alone:.2f} s; ratio to the larger "
              f"{min(ratios):.2f} to {max(ratios):.2f}")
    if args.resident:
        slower = [ours / alone for ours, alone in
                  zip(figures["ours"]["step_seconds"], figures["resident"]["step_seconds"])]
        figures["ours"]["ratio_to_resident"] = slower
        print(f"ours: {min(slower):.3f} to {max(slower):.3f} times as long as without a budget")
    support.save(args.name, {"model": os.path.basename(args.onnx), "memory": args.memory, "batch": args.batch,
                             "sequence": args.sequence, "options": args.options, "disk": rates, "figures": figures,
                             "rounds": rounds})


if __name__ == "__main__":
    main()
