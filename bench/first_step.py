#!/usr/bin/env python3
"""How long does a user wait for the first step? Compares the time from the command's start to the end of its first step
with the time of a later step.

    bench/first_step.py PROTRAIN MODEL.onnx [--batch 4] [--sequence 256] [--steps 5] [--rounds 3] [--name first-step]
                        [-- OPTION ...]

A round runs the command twice. The first run finds no measured times of kernels, the second finds those of the first.
The model's files are read once before, so both find them in the page cache. A later step is the median of the steps
after the first. Inputs of the model are input_ids and labels. Results: bench/results/NAME.json"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import support


def times_of(words):
    """Runs the command, whose metrics go to a pipe. Returns the seconds after which each step's line came."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    child = subprocess.Popen([*words, "--metrics", f"/dev/fd/{theirs}"], stdout=subprocess.DEVNULL, pass_fds=[theirs])
    os.close(theirs)
    with open(ours) as lines:
        ends = [time.monotonic() - began for _ in lines]
    if child.wait() != 0:
        raise SystemExit(f"the command ended with {child.returncode}")
    return ends


def read_once(onnx):
    folder, name = os.path.split(os.path.abspath(onnx))
    for file in sorted(os.listdir(folder)):
        if file.startswith(name):
            with open(os.path.join(folder, file), "rb") as data:
                while data.read(1 << 24):
                    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    for name, default in (("batch", 4), ("sequence", 256), ("steps", 5), ("rounds", 3)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--name", default="first-step")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    options = sys.argv[end + 1:]
    rounds = []
    read_once(args.onnx)
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            tokens = os.path.join(folder, "tokens.bin")
            support.write_tokens(tokens, args.batch * args.sequence * args.steps, 256)
            words = [args.protrain, "train", args.onnx, "--tokens", tokens, "--batch", str(args.batch), "--sequence",
                     str(args.sequence), "--labels", "same", "--steps", str(args.steps), "--profile-dir",
                     os.path.join(folder, "profile"), *options]
            for seen in (False, True):
                ends = times_of(words)
                step = statistics.median(b - a for a, b in zip(ends, ends[1:]))
                rounds.append({"seen_before": seen, "first_step_ends": ends[0], "later_step": step,
                               "in_steps": ends[0] / step})
                print(f"{'seen before' if seen else 'not seen':12} {ends[0]:.2f} s = {ends[0] / step:.2f} steps of "
                      f"{step:.2f} s", flush=True)
    support.save(args.name, {"model": os.path.basename(args.onnx), "batch": args.batch, "sequence": args.sequence,
                             "options": options, "rounds": rounds})


if __name__ == "__main__":
    main()
