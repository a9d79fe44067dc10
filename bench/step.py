#!/usr/bin/env python3
"""One training step beside PyTorch's and onnxruntime-training's, in turn, on the same machine.

    bench/step.py PROTRAIN PYTHON MODEL.onnx [--model gpt2-124m] [--batch 4] [--sequence 256] [--rounds 5] [--steps 4]
                  [--modes fp32] [--ort PYTHON] [--device cpu] [--name step] [-- OPTION ...]

PYTHON has torch and transformers; `PYTHON bench/peers/pytorch.py export gpt2-124m MODEL.onnx` writes the model.
--ort: a Python with onnxruntime-training, which trains the same file in fp32. OPTIONs go to `protrain train`. A round runs every contender once, in a process of its own, one after the other; the
first step of each is not counted, the fastest of the others is its time. A ratio is the peer's time over ours within one
round: the machine may be another a minute later. Results: bench/results/NAME.json"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import support

ORT = "onnxruntime"
HERE = os.path.dirname(os.path.abspath(__file__))


def ours(args, tokens, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    words = [args.protrain, "train", args.onnx, "--steps", str(args.steps), "--tokens", tokens, "--labels", args.labels,
             "--batch", str(args.batch), "--sequence", str(args.sequence), "--learning-rate", "1e-4", "--metrics", metrics, "--device", args.device]
    done, peak = support.run_measured(words + args.options)
    if done != 0:
        raise SystemExit(f"protrain left with {done}")
    rows = [json.loads(line) for line in open(metrics)]
    planned = rows[-1]["device_peak_bytes"]
    return {"seconds": [row["seconds"] for row in rows], "peak_bytes": peak if args.device == "cpu" else planned,
            "planned_bytes": planned + rows[-1]["host_peak_bytes"]}


def theirs(args, mode):
    sizes = [str(args.batch), str(args.sequence)]
    if mode == ORT:
        words = [args.ort, os.path.join(HERE, "peers", "onnxruntime_training.py"), args.onnx, *sizes, str(args.steps)]
    else:
        words = [args.python, os.path.join(HERE, "peers", "pytorch.py"), "step", args.model, *sizes, mode,
                 str(args.steps), args.device]
    done = support.run(words)
    if done.returncode != 0:
        return {"error": support.last_line(done.stderr)}
    return json.loads(support.last_line(done.stdout))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("python")
    parser.add_argument("onnx")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--labels", default="same", choices=("same", "next"))
    for name, default in (("batch", 4), ("sequence", 256), ("rounds", 5), ("steps", 4)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--modes", default="fp32", help="of PyTorch, with commas: fp32, compiled, autocast, bf16")
    parser.add_argument("--ort")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="step")
    ours_alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:ours_alone])
    args.options = sys.argv[ours_alone + 1:]
    contenders = ["ours", *args.modes.split(","), *([ORT] if args.ort else [])]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        support.write_tokens(tokens, args.batch * args.sequence * args.steps, 30000)
        for _ in range(args.rounds):
            row = {who: ours(args, tokens, folder) if who == "ours" else theirs(args, who) for who in contenders}
            rows.append(row)
            print("   ".join(f"{who} {min(of['seconds'][1:]):.2f} s, {support.size(of['peak_bytes'])}"
                             if "seconds" in of else f"{who}: {of['error']}" for who, of in row.items()), flush=True)
    ratios = {}
    for mode in contenders[1:]:
        of = [min(row[mode]["seconds"][1:]) / min(row["ours"]["seconds"][1:]) for row in rows if "seconds" in row[mode]]
        if of:
            memory = max(row["ours"]["peak_bytes"] for row in rows) / min(
                row[mode]["peak_bytes"] for row in rows if "seconds" in row[mode])
            ratios[mode] = {"median": statistics.median(of), "least": min(of), "most": max(of), "peak": memory}
            print(f"{mode if mode == ORT else 'PyTorch ' + mode}: {ratios[mode]['median']:.2f} times our step's time ({min(of):.2f} to {max(of):.2f}); "
                  f"our peak is {memory:.2f} of its")
    support.save(args.name, {"model": args.model, "batch": args.batch, "sequence": args.sequence, "device": args.device, "options": args.options,
                             "ratios": ratios, "rounds": rows})


if __name__ == "__main__":
    sys.exit(main())
