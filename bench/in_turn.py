"""Shared by the scripts that compare a training step with PyTorch's, in turn: models.py, recurrent.py, convolutions.py.

Such a script calls itself: with --prepare FOLDER it writes the model and its inputs, FOLDER/NAME.npy, and with --peer WAY
it prints the seconds of PyTorch's steps."""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import support


def settled(seconds):
    """The median and the fastest of the second half of the steps."""
    later = seconds[len(seconds) // 2:]
    return {"median": statistics.median(later), "fastest": min(later)}


def export(model, inputs, folder, dynamo=False):
    """Writes the model as a file, and its inputs {name: (batches, ...)}."""
    import numpy
    import torch

    for name, values in inputs.items():
        numpy.save(os.path.join(folder, name + ".npy"), values)
    settings = {} if dynamo else {"opset_version": 17, "do_constant_folding": False,
                                  "training": torch.onnx.TrainingMode.TRAINING}
    torch.onnx.export(model, tuple(torch.from_numpy(values)[0] for values in inputs.values()),
                      os.path.join(folder, "model.onnx"), input_names=list(inputs), output_names=["loss"], dynamo=dynamo,
                      **settings)


def train(parameters, compute, batches, steps, autocast=False):
    """Prints the seconds of each of PyTorch's steps. `compute` returns the loss of one of the batches."""
    import torch

    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    seconds = []
    for step in range(steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = compute(*batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "threads": torch.get_num_threads(), "torch": torch.__version__}))


def ours(args, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    names = [file.removesuffix(".npy") for file in sorted(os.listdir(folder)) if file.endswith(".npy")]
    inputs = [word for name in names for word in ("--input", f"{name}={folder}/{name}.npy")]
    done = support.run([args.protrain, "train", os.path.join(folder, "model.onnx"), "--steps", str(args.steps), *inputs,
                        "--metrics", metrics, *args.options])
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return settled([json.loads(line)["seconds"] for line in open(metrics)])


def theirs(args, way, preload, folder):
    environment = ["env", "LD_PRELOAD=" + support.preload_for_mkl(folder)] if preload else []
    done = support.run([*environment, *args.itself, "--steps", str(args.steps), "--peer", way])
    if done.returncode != 0:
        return support.last_line(done.stderr)
    return settled(json.loads(support.last_line(done.stdout))["seconds"])


def ratios_of(rows, ways, figure):
    """The ratios of PyTorch's best way to ours within each round, by one figure of settled()."""
    of = [min(row[way][figure] for way in ways if isinstance(row[way], dict)) / row["ours"][figure] for row in rows]
    return {"median": statistics.median(of), "least": min(of), "most": max(of)}


def compare(args, ways, result):
    """Runs rounds and keeps bench/results/RESULT.json. `ways`: {way of PyTorch: whether MKL is told of an Intel}."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if (done := support.run([*args.itself, "--prepare", folder])).returncode:
            raise SystemExit(done.stderr)
        for _ in range(args.rounds):
            row = {"ours": ours(args, folder),
                   **{way: theirs(args, way, preload, folder) for way, preload in ways.items()}}
            rows.append(row)
            print("   ".join(f"{who} {1000 * of['median']:.2f} ms" if isinstance(of, dict) else f"{who}: {of}"
                             for who, of in row.items()), flush=True)
    ratios = {figure: ratios_of(rows, ways, figure) for figure in ("median", "fastest")}
    for figure, ratio in ratios.items():
        print(f"PyTorch's best takes {ratio['median']:.2f} times as long ({ratio['least']:.2f} to {ratio['most']:.2f}), "
              f"by each one's {figure} step")
    support.save(result, {**args.setting, "options": args.options, "ratios": ratios, "rounds": rows})


def arguments(description, kind, kinds, sizes, rounds_and_steps):
    """The command line. `kind`: the option that chooses among `kinds`, of which the first is the default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("python")
    parser.add_argument("--" + kind, default=kinds[0], choices=kinds)
    for name, default in {**sizes, **rounds_and_steps}.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--name")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    ours_alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:ours_alone])
    args.options = sys.argv[ours_alone + 1:]
    args.setting = {name: getattr(args, name) for name in (kind, *sizes)}
    words = [word for name, value in args.setting.items() for word in ("--" + name, str(value))]
    args.itself = [args.python, os.path.abspath(sys.argv[0]), args.protrain, args.python, *words]
    return args
