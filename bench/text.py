#!/usr/bin/env python3
"""Does training in 16 bits lose as much on text as training in float32?

    bench/text.py PROTRAIN MODEL.onnx TEXT ... [--labels same] [--precisions fp32,bf16] [--steps 200] [--batch 4]
                  [--sequence 256] [-- OPTION ...]

Tokens are the bytes of the TEXTs, one file after the other, each used once. Prints the mean loss of the last tenth of
the steps in each precision, and its difference from that of the first precision. Results: bench/results/text.json"""
import argparse
import json
import os
import statistics
import struct
import sys
import tempfile

import support


def losses(args, precision, tokens, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    done = support.run([args.protrain, "train", args.onnx, "--steps", str(args.steps), "--tokens", tokens, "--labels",
                        args.labels, "--batch", str(args.batch), "--sequence", str(args.sequence), "--learning-rate",
                        "3e-4", "--precision", precision, "--metrics", metrics, *args.options])
    if done.returncode != 0:
        raise SystemExit(support.last_line(done.stderr))
    return [json.loads(line)["loss"] for line in open(metrics)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--labels", default="same", choices=("same", "next"))
    parser.add_argument("--precisions", default="fp32,bf16")
    for name, default in (("steps", 200), ("batch", 4), ("sequence", 256)):
        parser.add_argument("--" + name, type=int, default=default)
    alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:alone])
    args.options = sys.argv[alone + 1:]
    text = b"".join(open(path, "rb").read() for path in args.texts)
    wanted = args.steps * args.batch * args.sequence + 1
    if len(text) < wanted:
        raise SystemExit(f"the texts hold {len(text)} bytes, {wanted} are needed")
    found, means = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        with open(tokens, "wb") as file:
            file.write(struct.pack(f"<{wanted}H", *text[:wanted]))
        for precision in args.precisions.split(","):
            found[precision] = losses(args, precision, tokens, folder)
            means[precision] = statistics.mean(found[precision][-max(args.steps // 10, 1):])
            apart = means[precision] / next(iter(means.values())) - 1
            print(f"{precision}: loss {found[precision][0]:.4f}, at the end {means[precision]:.4f} ({apart:+.2%})",
                  flush=True)
    support.save("text", {"texts": [os.path.basename(path) for path in args.texts], "steps": args.steps,
                          "batch": args.batch, "sequence": args.sequence, "means": means, "losses": found})


if __name__ == "__main__":
    main()
