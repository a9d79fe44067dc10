#!/usr/bin/env python3
"""Compares a training step with that of PyTorch, IPEX, JAX and onnxruntime-training, in turn, on the same machine.

    bench/step.py PROTRAIN PYTHON MODEL.onnx [--model gpt2-124m] [--batch 4] [--sequence 256] [--rounds 5] [--steps 4]
                  [--modes fp32,compiled,autocast,bf16] [--ipex PYTHON] [--jax PYTHON] [--ort PYTHON] [--device cpu]
                  [--name step] [-- OPTION ...]

PYTHON has torch and transformers; `PYTHON bench/peers/pytorch.py export gpt2-124m MODEL.onnx` writes the model. --modes
names modes of bench/peers/pytorch.py and jax_training.py, "" for none. Those that begin with ipex and jax run in the
Pythons of --ipex, with Intel's extension for PyTorch, and --jax, with JAX and optax. --ort is a Python with
onnxruntime-training, which trains the same file in fp32. On a processor MKL runs as on Intel's. OPTIONs go to
`protrain train`. We run in fp32 against peers in fp32, and in bf16 against peers in 16 bits. A round runs every
contender once, in a process of its own, one after the other. The first step of each does not count, and the fastest of
the others is its time. A ratio is the peer's time over ours within one round, because the machine may be faster or
slower a minute later. Results: bench/results/NAME.json"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import support

ORT = "onnxruntime-training"
IN_FP32 = ("fp32", "compiled", ORT, "ipex-fp32", "jax-fp32")
HERE = os.path.dirname(os.path.abspath(__file__))


def ours(args, precision, tokens, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    words = [args.protrain, "train", args.onnx, "--steps", str(args.steps), "--tokens", tokens, "--labels", args.labels,
             "--batch", str(args.batch), "--sequence", str(args.sequence), "--learning-rate", "1e-4", "--precision", precision,
             "--metrics", metrics, "--device", args.device]
    done, peak = support.run_measured(words + args.options)
    if done != 0:
        raise SystemExit(f"protrain left with {done}")
    rows = [json.loads(line) for line in open(metrics)]
    planned = rows[-1]["device_peak_bytes"]
    return {"seconds": [row["seconds"] for row in rows], "peak_bytes": peak if args.device == "cpu" else planned,
            "planned_bytes": planned + rows[-1]["host_peak_bytes"]}


# The one of ours that a peer's mode is compared with.
def ours_beside(mode):
    return "ours fp32" if mode in IN_FP32 else "ours bf16"


def theirs(args, mode, environment):
    sizes = [str(args.batch), str(args.sequence)]
    if mode == ORT:
        words = [args.ort, os.path.join(HERE, "peers", "onnxruntime_training.py"), args.onnx, *sizes, str(args.steps)]
    else:
        python = {"ipex": args.ipex, "jax": args.jax}.get(mode.split("-")[0], args.python)
        script = "jax_training.py" if mode.startswith("jax") else "pytorch.py"
        words = [python, os.path.join(HERE, "peers", script), "step", args.model, *sizes, mode, str(args.steps), args.device]
    done = support.run(words, environment)
    if done.returncode != 0:
        return {"error": support.last_line(done.stderr)}
    return json.loads(support.last_line(done.stdout))


def words_of(row):
    return "   ".join(f"{who} {min(of['seconds'][1:]):.2f} s, {support.size(of['peak_bytes'])}" if "seconds" in of
                      else f"{who}: {of['error']}" for who, of in row.items())


# Returns the median, least and most of the ratios of the peer's time to ours within a round, and the ratio of our
# largest peak of memory to the peer's smallest.
def ratio_of(rows, peer):
    rows = [(row[peer], row[ours_beside(peer)]) for row in rows if "seconds" in row[peer]]
    if not rows:
        return None
    of = [min(theirs["seconds"][1:]) / min(ours["seconds"][1:]) for theirs, ours in rows]
    peak = max(ours["peak_bytes"] for _, ours in rows) / min(theirs["peak_bytes"] for theirs, _ in rows)
    return {"median": statistics.median(of), "least": min(of), "most": max(of), "peak": peak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("python")
    parser.add_argument("onnx")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--labels", default="same", choices=("same", "next"))
    for name, default in (("batch", 4), ("sequence", 256), ("rounds", 5), ("steps", 4)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--modes", default="fp32,compiled,autocast,bf16")
    for name in ("ipex", "jax", "ort"):
        parser.add_argument("--" + name)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--vocabulary", type=int, default=30000, help="random tokens are below it")
    parser.add_argument("--name", default="step")
    ours_alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:ours_alone])
    args.options = sys.argv[ours_alone + 1:]
    peers = [*filter(None, args.modes.split(",")), *([ORT] if args.ort else ())]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        support.write_tokens(tokens, args.batch * args.sequence * args.steps, args.vocabulary)
        environment = dict(os.environ)
        if args.device == "cpu":
            environment["LD_PRELOAD"] = support.preload_for_mkl(folder)
        for _ in range(args.rounds):
            row = {who: ours(args, who.split()[1], tokens, folder)
                   for who in sorted({ours_beside(peer) for peer in peers} or {"ours bf16", "ours fp32"})}
            row.update((peer, theirs(args, peer, environment)) for peer in peers)
            rows.append(row)
            print(words_of(row), flush=True)
    ratios = {peer: ratio for peer in peers if (ratio := ratio_of(rows, peer))}
    for peer, of in ratios.items():
        print(f"{peer}: {of['median']:.2f} times the step's time of {ours_beside(peer)} ({of['least']:.2f} to {of['most']:.2f}), "
              f"whose peak is {of['peak']:.2f} of its")
    support.save(args.name, {"model": args.model, "batch": args.batch, "sequence": args.sequence, "device": args.device,
                             "options": args.options, "ratios": ratios, "rounds": rows})


if __name__ == "__main__":
    sys.exit(main())
