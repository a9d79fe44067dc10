#!/usr/bin/env python3
"""Does training in 16 bits, or with moments of 8 bits, lose as much on text as training in float32?

    bench/text.py PROTRAIN MODEL.onnx TEXT ... [--labels same] [--precisions fp32,bf16] [--optimizers adamw]
                  [--steps 200] [--batch 4] [--sequence 256] [--rate 3e-4] [--result text] [-- OPTION ...]

Tokens are the bytes of the TEXTs, one file after the other, each used once. Prints the mean loss of the last tenth of
the steps in each precision and with each optimizer, its difference from the first of them, and the largest difference
between the means of any tenth, and the bytes in which weights and optimizer state rest. Results:
bench/results/text.json, or RESULT.json"""
import argparse
import itertools
import json
import os
import statistics
import struct
import sys
import tempfile

import support


def losses(args, precision, optimizer, tokens, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    done = support.run([args.protrain, "train", args.onnx, "--steps", str(args.steps), "--tokens", tokens, "--labels",
                        args.labels, "--batch", str(args.batch), "--sequence", str(args.sequence), "--learning-rate",
                        args.rate, "--precision", precision, "--optimizer", optimizer, "--metrics", metrics,
                        *args.options])
    if done.returncode != 0:
        raise SystemExit(support.last_line(done.stderr))
    return [json.loads(line)["loss"] for line in open(metrics)]


def resting_bytes(args, precision, optimizer):
    done = support.run([args.protrain, "plan", args.onnx, "--json", "--dim", f"batch={args.batch}", "--dim",
                        f"sequence={args.sequence}", "--precision", precision, "--optimizer", optimizer, *args.options])
    if done.returncode != 0:
        raise SystemExit(support.last_line(done.stderr))
    return support.resting_bytes(json.loads(done.stdout)["timeline"])


def by_tenths(values):
    """The means of each tenth of the steps."""
    each = max(len(values) // 10, 1)
    return [statistics.mean(values[at:at + each]) for at in range(0, len(values), each)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--labels", default="same", choices=("same", "next"))
    for name, default in (("precisions", "fp32,bf16"), ("optimizers", "adamw"), ("rate", "3e-4"), ("result", "text")):
        parser.add_argument("--" + name, default=default)
    for name, default in (("steps", 200), ("batch", 4), ("sequence", 256)):
        parser.add_argument("--" + name, type=int, default=default)
    alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:alone])
    args.options = sys.argv[alone + 1:]
    text = b"".join(open(path, "rb").read() for path in args.texts)
    wanted = args.steps * args.batch * args.sequence + 1
    if len(text) < wanted:
        raise SystemExit(f"the texts hold {len(text)} bytes, {wanted} are needed")
    found, tenths, resting = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        with open(tokens, "wb") as file:
            file.write(struct.pack(f"<{wanted}H", *text[:wanted]))
        for precision, optimizer in itertools.product(args.precisions.split(","), args.optimizers.split(",")):
            name = precision if args.optimizers == "adamw" else f"{optimizer} {precision}"
            found[name] = losses(args, precision, optimizer, tokens, folder)
            tenths[name] = by_tenths(found[name])
            resting[name] = resting_bytes(args, precision, optimizer)
            apart = [own / first - 1 for own, first in zip(tenths[name], next(iter(tenths.values())))]
            print(f"{name}: loss {found[name][0]:.4f}, at the end {tenths[name][-1]:.4f} ({apart[-1]:+.2%}, "
                  f"of the tenths {max(apart, key=abs):+.2%}); {resting[name]} bytes rest", flush=True)
    support.save(args.result, {"texts": [os.path.basename(path) for path in args.texts], "steps": args.steps,
                               "batch": args.batch, "sequence": args.sequence, "learning_rate": args.rate,
                               "options": args.options, "means": {name: means[-1] for name, means in tenths.items()},
                               "resting_bytes": resting,
                               "losses": found})


if __name__ == "__main__":
    main()
