#!/usr/bin/env python3
"""Measures a session with adapters on a base in several forms: tokens per second, and the peak of resident memory.

    bench/adapters.py PROTRAIN MODEL.onnx [--forms file,bf16,int8,nf4] [--rank 16] [--lora '*_proj.weight'] [--batch 1]
                      [--sequence 512] [--precision bf16] [--rounds 3] [--steps 3] [--name adapters]
                      [--python PYTHON --model llama-1.1b --ways autocast,fp32] [-- OPTION ...]

A round runs every form once, in a process of its own, one after the other. With --python, PyTorch and PEFT train
--model, which is as large as MODEL.onnx (peers/pytorch.py), in each round too: on a base in bfloat16 under autocast, and
on one in float32, because a processor without bfloat16 is slow at the former. The faster one counts.
The first step of each does not count, and the fastest of the others is its time. `base_bytes` is what the frozen weights
take, from `protrain check`, with 4.13 bits for a weight in nf4, and scales and zero points of 128 for integers. Results:
bench/results/NAME.json"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import support

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1 + 5 / 128, "int4": 0.5 + 5 / 128,
         "nf4": 0.5 + 1 / 64 + 4 / 64 / 256}


def words_of(args, form):
    return ["--lora", f"{args.lora},rank={args.rank}", "--base-precision", form, "--precision", args.precision]


def base_bytes(args, form):
    sizes = ["--dim", f"batch={args.batch}", "--dim", f"sequence={args.sequence}"]
    done = support.run([args.protrain, "check", args.onnx, "--json", *sizes, *words_of(args, form)])
    total = 0
    for row in json.loads(done.stdout)["parameters"]:
        elements = 1
        for side in row["shape"]:
            elements *= side
        total += elements * BYTES[row["dtype"]] if row.get("frozen") else 0
    return round(total)


def measured(args, form, tokens, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    words = [args.protrain, "train", args.onnx, "--steps", str(args.steps), "--tokens", tokens, "--labels", "same",
             "--batch", str(args.batch), "--sequence", str(args.sequence), "--learning-rate", "1e-4", "--metrics", metrics,
             *words_of(args, form)]
    done, peak = support.run_measured(words + args.options)
    if done != 0:
        raise SystemExit(f"protrain left with {done}")
    rows = [json.loads(line) for line in open(metrics)]
    seconds = min(row["seconds"] for row in rows[1:])
    return {"tokens_per_second": args.batch * args.sequence / seconds, "peak_bytes": peak,
            "planned_bytes": rows[-1]["device_peak_bytes"] + rows[-1]["host_peak_bytes"], "loss": rows[-1]["loss"]}


def peer(args, way, folder):
    environment = dict(os.environ, LD_PRELOAD=support.preload_for_mkl(folder))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "pytorch.py")
    words = [args.python, script, "step", args.model, str(args.batch), str(args.sequence), f"lora{args.rank}-{way}",
             str(args.steps), "cpu"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    found = json.loads(support.last_line(done.stdout))
    return {"way": way, "tokens_per_second": args.batch * args.sequence / min(found["seconds"][1:]),
            "peak_bytes": found["peak_bytes"], "torch": found["torch"]}


def spread(runs):
    speeds = [run["tokens_per_second"] for run in runs]
    return {"median": statistics.median(speeds), "least": min(speeds), "most": max(speeds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    parser.add_argument("--forms", default="file,bf16,int8,nf4")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lora", default="*_proj.weight")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--name", default="adapters")
    parser.add_argument("--python")
    parser.add_argument("--model", default="llama-1.1b")
    parser.add_argument("--ways", default="autocast,fp32")
    parser.add_argument("--note", default="")
    ours_alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:ours_alone])
    args.options = sys.argv[ours_alone + 1:]
    forms = args.forms.split(",")
    runs = {form: [] for form in forms}
    peers = []
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens")
        support.write_tokens(tokens, 8 * args.batch * args.sequence, 30000)
        for number in range(args.rounds):
            for form in forms:
                runs[form].append(measured(args, form, tokens, folder))
                print(number, form, runs[form][-1], flush=True)
            if args.python:
                ways = [peer(args, way, folder) for way in args.ways.split(",")]
                peers.append(max(ways, key=lambda way: way["tokens_per_second"]))
                print(number, "PyTorch", ways, flush=True)
    figures = {"model": os.path.basename(args.onnx), "batch": args.batch, "sequence": args.sequence, "rank": args.rank,
               "lora": args.lora, "precision": args.precision, "options": args.options, "note": args.note, "forms": {}}
    for form in forms:
        figures["forms"][form] = {"base_bytes": base_bytes(args, form), "peak_bytes": max(r["peak_bytes"] for r in runs[form]),
                                  "planned_bytes": runs[form][0]["planned_bytes"], "loss": runs[form][0]["loss"],
                                  "tokens_per_second": spread(runs[form])}
        if peers:
            ratios = [run["tokens_per_second"] / other["tokens_per_second"] for run, other in zip(runs[form], peers)]
            figures["forms"][form]["faster_than_pytorch"] = statistics.median(ratios)
        print(form, figures["forms"][form])
    if peers:
        figures["pytorch"] = {"torch": peers[0]["torch"], "ways": [run["way"] for run in peers],
                              "peak_bytes": max(run["peak_bytes"] for run in peers), "tokens_per_second": spread(peers)}
    support.save(args.name, figures)


if __name__ == "__main__":
    main()
