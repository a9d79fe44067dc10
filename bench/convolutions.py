#!/usr/bin/env python3
"""Compares a training step of convolutional networks with PyTorch's, in turn, on the same machine.

    bench/convolutions.py PROTRAIN PYTHON [--model resnet18] [--batch 4] [--size 224] [--rounds 5] [--steps 12]
                          [--name convolutions-MODEL] [-- OPTION ...]

PYTHON has torch and onnxscript. The models are ResNet-18 and MobileNetV2 with BatchNorm in training mode, and a network of
two convolutions (`tiny`), each with a cross entropy and AdamW, in float32. A round runs every contender once, in a process
of its own, one after the other. The median of the second half of its steps is its time. PyTorch runs in several ways, and
its best one in each round counts: eager and compiled, in both layouts. Intel's MKL is always told that the processor is
Intel's, which makes it faster. A way that PyTorch cannot run is recorded with its error. Results: bench/results/NAME.json"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import support

WAYS = ["eager", "eager channels_last", "compiled", "compiled channels_last"]
CLASSES = 10


def resnet18(nn, functional):
    def conv(i, o, kernel, stride):
        return [nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o)]

    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.body = nn.Sequential(*conv(i, o, 3, stride), nn.ReLU(), *conv(o, o, 3, 1))
            self.skip = nn.Sequential(*conv(i, o, 1, stride)) if stride > 1 else nn.Identity()

        def forward(self, x):
            return functional.relu(self.body(x) + self.skip(x))

    layers = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for i, o, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(i, o, stride), Block(o, o, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def mobilenet_v2(nn, functional):
    def conv(i, o, kernel, stride, groups=1, active=True):
        layers = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
        return layers + [nn.ReLU6()] * active

    class Block(nn.Module):
        def __init__(self, i, o, stride, expansion):
            super().__init__()
            wide = i * expansion
            self.body = nn.Sequential(*(conv(i, wide, 1, 1) if expansion > 1 else []), *conv(wide, wide, 3, stride, wide),
                                      *conv(wide, o, 1, 1, active=False))
            self.adds = stride == 1 and i == o

        def forward(self, x):
            return x + self.body(x) if self.adds else self.body(x)

    layers, width = conv(3, 32, 3, 2), 32
    for expansion, o, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                        (6, 160, 3, 2), (6, 320, 1, 1)):
        for number in range(count):
            layers.append(Block(width, o, stride if number == 0 else 1, expansion))
            width = o
    layers += conv(width, 1280, 1, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, CLASSES))


def tiny(nn, functional):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                         nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))


MODELS = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2, "tiny": tiny}


def model(args):
    import torch

    class Trained(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = MODELS[args.model](torch.nn, torch.nn.functional)

        def forward(self, image, label):
            return torch.nn.functional.cross_entropy(self.m(image), label)

    torch.manual_seed(0)
    return Trained()


def data(args, steps):
    import numpy

    drawn = numpy.random.default_rng(1)
    return [drawn.standard_normal((steps, args.batch, 3, args.size, args.size), numpy.float32),
            drawn.integers(0, CLASSES, (steps, args.batch))]


def prepare(args, folder):
    """Writes the model as a file, and its inputs."""
    import numpy
    import torch

    image, label = data(args, 2)
    numpy.save(os.path.join(folder, "image.npy"), image)
    numpy.save(os.path.join(folder, "label.npy"), label)
    torch.onnx.export(model(args), (torch.from_numpy(image[0]), torch.from_numpy(label[0])),
                      os.path.join(folder, "model.onnx"), input_names=["image", "label"], output_names=["loss"],
                      dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING)


def peer(args, way):
    """Prints the seconds of each of PyTorch's steps."""
    import time

    import torch

    layout = torch.channels_last if "channels_last" in way else torch.contiguous_format
    trained = model(args).to(memory_format=layout)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3, fused=True)
    image, label = (torch.from_numpy(values) for values in data(args, 2))
    images = [one.contiguous(memory_format=layout) for one in image]
    compute = torch.compile(trained) if "compiled" in way else trained
    seconds = []
    for step in range(args.steps):
        start = time.perf_counter()
        compute(images[step % 2], label[step % 2]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "threads": torch.get_num_threads(), "torch": torch.__version__}))


def settled(seconds):
    return statistics.median(seconds[len(seconds) // 2:])


def ours(args, folder):
    metrics = os.path.join(folder, "metrics.jsonl")
    done = support.run([args.protrain, "train", os.path.join(folder, "model.onnx"), "--steps", str(args.steps), "--input",
                        f"image={folder}/image.npy", "--input", f"label={folder}/label.npy", "--metrics", metrics,
                        *args.options])
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return settled([json.loads(line)["seconds"] for line in open(metrics)])


def theirs(args, way, folder):
    done = support.run(["env", "LD_PRELOAD=" + support.preload_for_mkl(folder), args.python, os.path.abspath(__file__),
                        *sys.argv[1:3], *args.sizes, "--steps", str(args.steps), "--peer", way])
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
    keys = ("model", "batch", "size", "options")
    support.save(args.name or "convolutions-" + args.model,
                 {**{key: getattr(args, key) for key in keys}, "ratio": ratio, "rounds": rows})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("python")
    parser.add_argument("--model", default="resnet18", choices=MODELS)
    for name, default in {"batch": 4, "size": 224, "rounds": 5, "steps": 12}.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--name")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    ours_alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:ours_alone])
    args.options = sys.argv[ours_alone + 1:]
    args.sizes = ["--model", args.model, "--batch", str(args.batch), "--size", str(args.size)]
    if args.prepare:
        prepare(args, args.prepare)
    elif args.peer:
        peer(args, args.peer)
    else:
        compare(args)


if __name__ == "__main__":
    main()
