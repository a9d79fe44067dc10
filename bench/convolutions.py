#!/usr/bin/env python3
"""Compares a training step of convolutional networks with PyTorch's, in turn, on the same machine.

    bench/convolutions.py PROTRAIN PYTHON [--model resnet18] [--batch 4] [--size 224] [--rounds 5] [--steps 12]
                          [--name convolutions-MODEL] [-- OPTION ...]

PYTHON has torch and onnxscript. The models are ResNet-18 and MobileNetV2 with BatchNorm in training mode, and a network of
two convolutions (`tiny`), each with a cross entropy and AdamW, in float32. A round runs every contender once, in a process
of its own, one after the other. The median of the second half of its steps is its time. PyTorch runs in several ways, and
its best one in each round counts: eager and compiled, in both layouts. Intel's MKL is always told that the processor is
Intel's, which makes it faster. A way that PyTorch cannot run is recorded with its error. Results: bench/results/NAME.json"""
import in_turn

WAYS = dict.fromkeys(("eager", "eager channels_last", "compiled", "compiled channels_last"), True)  # MKL told of an Intel
INPUTS = ("image", "label")
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


def data(args):
    """Two batches."""
    import numpy

    drawn = numpy.random.default_rng(1)
    return [drawn.standard_normal((2, args.batch, 3, args.size, args.size), numpy.float32),
            drawn.integers(0, CLASSES, (2, args.batch))]


def peer(args):
    import torch

    layout = torch.channels_last if "channels_last" in args.peer else torch.contiguous_format
    trained = model(args).to(memory_format=layout)
    image, label = (torch.from_numpy(values) for values in data(args))
    batches = list(zip((one.contiguous(memory_format=layout) for one in image), label))
    in_turn.train(trained.parameters(), torch.compile(trained) if "compiled" in args.peer else trained, batches, args.steps)


def main():
    args = in_turn.arguments(__doc__, "model", tuple(MODELS), {"batch": 4, "size": 224}, {"rounds": 5, "steps": 12})
    if args.prepare:
        in_turn.export(model(args), dict(zip(INPUTS, data(args))), args.prepare)
    elif args.peer:
        peer(args)
    else:
        in_turn.compare(args, WAYS, args.name or "convolutions-" + args.model)


if __name__ == "__main__":
    main()
