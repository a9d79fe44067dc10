#!/usr/bin/env python3
"""Measures what a model takes whose weights and optimizer state all stay in memory.

    bench/resting.py PROTRAIN MODEL.onnx [--optimizer adamw8bit] [--precision bf16] [--batch 1] [--sequence 64]
                     [--steps 2] [--name resting]

Trains within the least memory, without a disk, on random tokens. Gives bytes a parameter: of weights and optimizer
state between steps, by the run's report; of the budget; and of the whole process at its largest, as the system counts
it. Inputs of the model are input_ids and labels. Results: bench/results/NAME.json"""
import argparse
import json
import os
import tempfile

import support


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    for name, default in (("optimizer", "adamw8bit"), ("precision", "bf16"), ("name", "resting")):
        parser.add_argument("--" + name, default=default)
    for name, default in (("batch", 1), ("sequence", 64), ("steps", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    args = parser.parse_args()
    options = ["--optimizer", args.optimizer, "--precision", args.precision]
    dims = ["--dim", f"batch={args.batch}", "--dim", f"sequence={args.sequence}"]
    smallest = support.plan(args.protrain, args.onnx, [*options, *dims, "--memory", "1"])
    least = smallest["device_peak_bytes"] + smallest["host_peak_bytes"]
    options += ["--memory", str(least)]
    with tempfile.TemporaryDirectory() as folder:
        tokens, report = os.path.join(folder, "tokens.bin"), os.path.join(folder, "report.json")
        support.write_tokens(tokens, args.batch * args.sequence * args.steps, 256)
        status, process = support.run_measured(
            [args.protrain, "train", args.onnx, "--tokens", tokens, "--batch", str(args.batch), "--sequence",
             str(args.sequence), "--labels", "same", "--steps", str(args.steps), "--report", report, *options])
        if status != 0:
            raise SystemExit(f"the run ended with {status}")
        rests = support.resting_bytes(json.load(open(report))["timeline"])
    parameters = json.loads(support.run([args.protrain, "check", args.onnx, "--json"]).stdout)["parameter_elements"]
    figures = {"rests": rests, "budget": least, "process": process}
    print(", ".join(f"{name}: {number} bytes, {number / parameters:.2f} a parameter"
                    for name, number in figures.items()))
    support.save(args.name, {
        "model": os.path.basename(args.onnx), "parameters": parameters, "optimizer": args.optimizer,
        "precision": args.precision, "batch": args.batch, "sequence": args.sequence, "bytes": figures,
        "bytes_per_parameter": {name: number / parameters for name, number in figures.items()}})


if __name__ == "__main__":
    main()
