#!/usr/bin/env python3
"""Compares a training step of a recurrent layer with PyTorch's, in turn, on the same machine.

    bench/recurrent.py PROTRAIN PYTHON [--cell LSTM] [--units 256] [--features 256] [--sequence 64] [--batch 32]
                       [--layers 1] [--directions 1] [--rounds 5] [--steps 40] [--name recurrent] [-- OPTION ...]

PYTHON has torch and onnxscript. The model is nn.LSTM, nn.GRU or nn.RNN, and the mean squared difference of its output
from a target, with AdamW, in float32. A round runs every contender once, in a process of its own, one after the other. The median
of the second half of its steps is its time. PyTorch runs in several ways, and its best one in each round counts: with
oneDNN's recurrent layers and without, each as it is and with Intel's MKL told that the processor is Intel's, which makes
MKL faster. A way that PyTorch cannot run is recorded with its error. Results: bench/results/NAME.json"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import support

WAYS = ["onednn", "plain", "onednn mkl", "plain mkl"]


def model(args):
    import torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = getattr(torch.nn, args.cell)(args.features, args.units, num_layers=args.layers,
                                                  bidirectional=args.directions == 2)

        def forward(self, x, target):
            return torch.nn.functional.mse_loss(self.m(x)[0], target)

    torch.manual_seed(0)
    return Layer()


def data(args, steps):
    import numpy

    drawn = numpy.random.default_rng(1)
    shape = (steps, args.sequence, args.batch)
    return [drawn.standard_normal((*shape, width), numpy.float32) for width in (args.features, args.units * args.directions)]


def prepare(args, folder):
    """Writes the model as a file, and its inputs."""
    import numpy
    import torch

    x, target = data(args, 4)
    numpy.save(os.path.join(folder, "x.npy"), x)
    numpy.save(os.path.join(folder, "target.npy"), target)
    torch.onnx.export(model(args), (torch.from_numpy(x[0]), torch.from_numpy(target[0])), os.path.join(folder, "model.onnx"),
                      input_names=["x", "target"], output_names=["loss"], dynamo=False, opset_version=17,
                      do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING)


def peer(args, way):
    """Prints the seconds of each of PyTorch's steps."""
    import time

    import torch

    torch.backends.mkldnn.enabled = "onednn" in way
    layer = model(args)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3, fused=True)
    x, target = (torch.from_numpy(values) for values in data(args, 4))
    seconds = []
    for step in range(args.steps):
        start = time.perf_counter()
        layer(x[step % 4], target[step % 4]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "threads": torch.get_num_threads(), "torch": torch.__version__}))


def settled(seconds):
    return statistics.median(seconds[len(seconds) // 2:])


def ours(args, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    done = support.run([args.protrain, "train", os.path.join(folder, "model.onnx"), "--steps", str(args.steps), "--input",
                        f"x={folder}/x.npy", "--input", f"target={folder}/target.npy", "--metrics", metrics, *args.options])
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return settled([json.loads(line)["seconds"] for line in open(metrics)])


def theirs(args, way, folder):
    environment = ["env", "LD_PRELOAD=" + support.preload_for_mkl(folder)] if "mkl" in way else []
    done = support.run([*environment, args.python, os.path.abspath(__file__), *sys.argv[1:3], *args.sizes, "--steps",
                        str(args.steps), "--peer", way])
    if done.returncode != 0:
        return support.last_line(done.stderr)
    return settled(json.loads(support.last_line(done.stdout))["seconds"])


def compare(args):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        words = [args.python, os.path.abspath(__file__), *sys.argv[1:3], *args.sizes, "--prepare", folder]
        if (done := support.run(words)).returncode:
            raise SystemExit(done.stderr)
        for _ in range(args.rounds):
            row = {"ours": ours(args, folder), **{way: theirs(args, way, folder) for way in WAYS}}
            rows.append(row)
            print("   ".join(f"{who} {1000 * of:.2f} ms" if isinstance(of, float) else f"{who}: {of}"
                             for who, of in row.items()), flush=True)
    of = [min(row[way] for way in WAYS if isinstance(row[way], float)) / row["ours"] for row in rows]
    ratio = {"median": statistics.median(of), "least": min(of), "most": max(of)}
    print(f"PyTorch's best takes {ratio['median']:.2f} times as long ({min(of):.2f} to {max(of):.2f})")
    keys = ("cell", "units", "features", "sequence", "batch", "layers", "directions", "options")
    support.save(args.name, {**{key: getattr(args, key) for key in keys}, "ratio": ratio, "rounds": rows})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("python")
    parser.add_argument("--cell", default="LSTM", choices=("LSTM", "GRU", "RNN"))
    sizes = {"units": 256, "features": 256, "sequence": 64, "batch": 32, "layers": 1, "directions": 1}
    for name, default in {**sizes, "rounds": 5, "steps": 40}.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--name", default="recurrent")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    ours_alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:ours_alone])
    args.options = sys.argv[ours_alone + 1:]
    args.sizes = ["--cell", args.cell, *(word for name in sizes for word in ("--" + name, str(getattr(args, name))))]
    if args.prepare:
        prepare(args, args.prepare)
    elif args.peer:
        peer(args, args.peer)
    else:
        compare(args)


if __name__ == "__main__":
    main()
