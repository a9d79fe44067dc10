#!/usr/bin/env python3
"""How well is a step predicted? Runs many plans of one model for a few steps each, and a reference plan between them.

    bench/prediction.py PROTRAIN MODEL.onnx [--batch 4] [--sequence 256] [--steps 4] [--directory /var/tmp]
                        [--name prediction]

The machine's speed drifts. So the script divides a plan's time by the reference's, which it measures just before and
after, and compares this ratio with the same ratio of the predictions. Each of the two times is that of the fastest step.
Steps that others disturbed differ: a plan whose fastest two steps, or whose references, are more than 3 % apart runs
again, at most three times in all. Memory is compared directly. Prints one line per plan, and the median and worst
error. Results, with the seconds of every step: bench/results/NAME.json"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

import support

PLANS = (
    [{"n_persist": p, "n_host": 0, "n_buffer": b, "n_checkpoint": c}
     for p, b, c in ((24, 4, 0), (16, 4, 0), (8, 4, 0), (0, 4, 0), (0, 2, 0), (0, 8, 6), (8, 2, 6), (16, 2, 12), (0, 4, 12),
                     (99, 0, 6), (99, 0, 12), (4, 3, 3))]
    + [{"n_persist": 8, "n_host": 0, "n_buffer": 4, "n_swap": 2, "n_checkpoint": 4},
       {"n_persist": 16, "n_host": 0, "n_buffer": 4, "n_swap": 4, "n_checkpoint": 0},
       {"n_persist": 0, "n_host": 0, "n_buffer": 2, "n_swap": 1, "n_checkpoint": 11},
       {"n_persist": 12, "n_host": 0, "n_buffer": 4, "optimizer_order": "barrier"},
       {"n_persist": 0, "n_host": 0, "n_buffer": 4, "n_checkpoint": 12, "optimizer_order": "barrier"},
       {"n_persist": 99, "n_host": 0, "n_buffer": 0, "n_selective": 6},
       {"n_persist": 99, "n_host": 0, "n_buffer": 0, "n_selective": 12},
       {"n_persist": 10, "n_host": 0, "n_buffer": 4, "n_selective": 12},
       {"n_persist": 0, "n_host": 0, "n_buffer": 3, "n_selective": 6, "n_checkpoint": 6},
       {"n_persist": 6, "n_host": 0, "n_buffer": 6, "n_swap": 1, "n_selective": 5, "n_checkpoint": 3},
       {"n_persist": 20, "n_host": 0, "n_buffer": 2, "n_swap": 3},
       {"n_persist": 0, "n_host": 0, "n_buffer": 6, "n_selective": 12, "optimizer_order": "barrier"},
       {"n_persist": 99, "n_host": 0, "n_buffer": 0, "n_checkpoint": 3, "optimizer_order": "barrier"}])
# Plans in which device and host have separate memories, so that copies are made.
APART = ({"n_persist": 8, "n_buffer": 4, "n_checkpoint": 4},
         {"n_persist": 4, "n_buffer": 4, "n_host": 8, "n_checkpoint": 6, "update": "device"},
         {"n_persist": 0, "n_buffer": 4, "n_host": 12, "n_checkpoint": 12},
         {"n_persist": 12, "n_buffer": 4, "n_host": 4, "n_selective": 8},
         {"n_persist": 0, "n_buffer": 6, "n_host": 20, "n_selective": 12, "update": "device"})


ROUNDS = 3
SETTLED = 1.03


def settled(seconds):
    """Whether the fastest two of the seconds agree."""
    first, second = sorted(seconds)[:2]  # --steps is at least 3, and the first step does not count
    return second <= SETTLED * first


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.data = os.path.join(folder, "tokens.npy")
        draw = random.Random(1)
        tokens = [draw.randrange(50000) for _ in range(args.batch * args.sequence)]
        support.write_array(self.data, (1, args.batch, args.sequence), tokens)

    def options(self, plan, apart):
        path = os.path.join(self.folder, "plan.json")
        with open(path, "w") as file:
            json.dump(dict(plan, chunk_bytes="16MiB"), file)
        memory = ["--device-memory", "6GiB", "--host-memory", "6GiB"] if apart else ["--memory", "8GiB"]
        return ["--plan", path, "--offload-dir", self.args.directory] + memory

    def run(self, plan, apart=False):
        """Returns predicted seconds, the seconds of each step but the first, and predicted and measured peak bytes."""
        options = self.options(plan, apart)
        metrics = os.path.join(self.folder, "metrics.jsonl")
        dims = ["--dim", f"batch={self.args.batch}", "--dim", f"sequence={self.args.sequence}"]
        text = subprocess.run([self.args.protrain, "plan", self.args.model, "--json"] + dims + options,
                              check=True, capture_output=True, text=True).stdout
        planned = json.loads(text)
        subprocess.run([self.args.protrain, "train", self.args.model, "--steps", str(self.args.steps), "--metrics", metrics,
                        "--input", f"input_ids={self.data}", "--input", f"labels={self.data}"] + options,
                       check=True, capture_output=True)
        lines = [json.loads(line) for line in open(metrics)]
        return (planned["step_seconds"], [line["seconds"] for line in lines[1:]],
                (planned["device_peak_bytes"], planned["host_peak_bytes"]),
                (lines[-1]["device_peak_bytes"], lines[-1]["host_peak_bytes"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("protrain")
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--directory", default="/var/tmp")
    parser.add_argument("--name", default="prediction")
    args = parser.parse_args()
    if args.steps < 3:
        parser.error("--steps must be at least 3: the first step does not count, and two are compared")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        reference = {"n_persist": 999}
        rows, references = [], [bench.run(reference)]
        for plan, apart in [(p, False) for p in PLANS] + [(p, True) for p in APART]:
            measured, near = [], [min(references[-1][1])]
            for _ in range(ROUNDS):
                predicted, seconds, planned_bytes, bytes_ = bench.run(plan, apart)
                measured += seconds
                references.append(bench.run(reference))
                near.append(min(references[-1][1]))
                if settled(measured) and settled(near):
                    break
            error = predicted / references[-1][0] / (min(measured) / min(near)) - 1
            rows.append({"plan": plan, "apart": apart, "predicted_seconds": predicted, "measured_seconds": measured,
                         "reference_seconds": near, "error": error, "memory_equal": planned_bytes == bytes_})
            print(f"{error:+7.1%}  predicted {predicted:6.2f} s  measured {min(measured):6.2f} to {max(measured):6.2f} s  "
                  f"reference {min(near):.2f} to {max(near):.2f} s  "
                  f"memory {'equal' if planned_bytes == bytes_ else 'DIFFERS'}  {json.dumps(plan)}", flush=True)
    errors = sorted(abs(row["error"]) for row in rows)
    seconds = [min(r[1]) for r in references]
    summary = {"plans": len(rows), "median_error": statistics.median(errors), "worst_error": errors[-1],
               "reference_predicted_seconds": references[0][0], "reference_seconds": seconds,
               "reference_spread": max(seconds) / min(seconds) - 1, "memory_equal": all(r["memory_equal"] for r in rows)}
    print(f"median {summary['median_error']:.1%}, worst {summary['worst_error']:.1%}; reference {min(seconds):.2f} to "
          f"{max(seconds):.2f} s, predicted {references[0][0]:.2f} s")
    support.save(args.name, {"model": os.path.basename(args.model), "batch": args.batch, "sequence": args.sequence,
                             "steps": args.steps, "summary": summary, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
