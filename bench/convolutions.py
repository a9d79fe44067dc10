#!/usr/bin/env python3
"""Compares a training step of convolutional networks with PyTorch's, in turn, on the same machine.

    bench/convolutions.py PROTRAIN PYTHON [--model resnet18] [--batch 4] [--size 224] [--rounds 5] [--steps 12]
                          [--name convolutions-MODEL] [-- OPTION ...]

PYTHON has torch and onnxscript. The models are ResNet-18, ResNet-50 and MobileNetV2 with BatchNorm in training mode, a UNet
with GroupNorm that finds each pixel's class, and a network of two convolutions (`tiny`), each with a cross entropy and
AdamW. All run in float32, or in bfloat16 with `-- --precision bf16`. A round runs every contender once, in a process of its
own, one after the other. The median and the fastest of the second half of its steps are its times. PyTorch runs in several
ways, and its best one in each round counts: eager and compiled, in both layouts. Intel's MKL is always told that the
processor is Intel's, which makes it faster. A way that PyTorch cannot run is recorded with its error. Results:
bench/results/NAME.json"""
import in_turn

WAYS = ("eager", "eager channels_last", "compiled", "compiled channels_last")
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


def resnet50(nn, functional):
    def conv(i, o, kernel, stride=1):
        return [nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o)]

    class Block(nn.Module):
        def __init__(self, i, inner, stride):
            super().__init__()
            o = 4 * inner
            self.body = nn.Sequential(*conv(i, inner, 1), nn.ReLU(), *conv(inner, inner, 3, stride), nn.ReLU(),
                                      *conv(inner, o, 1))
            self.skip = nn.Sequential(*conv(i, o, 1, stride)) if i != o else nn.Identity()

        def forward(self, x):
            return functional.relu(self.body(x) + self.skip(x))

    layers, width = [*conv(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for inner, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers.append(Block(width, inner, stride if number == 0 else 1))
            width = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


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


def unet(nn, functional, widths=(64, 128, 256)):
    import torch

    def block(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1),
                             nn.GroupNorm(8, o), nn.SiLU())

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(block(i, o) for i, o in zip((3, *widths), widths))
            self.wider = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(widths, widths[1:]))
            self.up = nn.ModuleList(block(2 * o, o) for o in widths[:-1])
            self.last = nn.Conv2d(widths[0], CLASSES, 1)

        def forward(self, x):
            kept = []
            for level in self.down[:-1]:
                kept.append(level(x))
                x = functional.max_pool2d(kept[-1], 2)
            x = self.down[-1](x)
            for wider, up in zip(reversed(self.wider), reversed(self.up)):
                x = up(torch.cat([kept.pop(), wider(x)], 1))
            return self.last(x)

    return UNet()


def tiny(nn, functional):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                         nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES))


MODELS = {"resnet18": resnet18, "resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "unet": unet, "tiny": tiny}


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
    labels = (2, args.batch, args.size, args.size) if args.model == "unet" else (2, args.batch)
    return [drawn.standard_normal((2, args.batch, 3, args.size, args.size), numpy.float32),
            drawn.integers(0, CLASSES, labels)]


def peer(args):
    import torch

    layout = torch.channels_last if "channels_last" in args.peer else torch.contiguous_format
    trained = model(args).to(memory_format=layout)
    image, label = (torch.from_numpy(values) for values in data(args))
    batches = list(zip((one.contiguous(memory_format=layout) for one in image), label))
    in_turn.train(trained.parameters(), torch.compile(trained) if "compiled" in args.peer else trained, batches, args.steps,
                  "autocast" in args.peer)


def main():
    args = in_turn.arguments(__doc__, "model", tuple(MODELS), {"batch": 4, "size": 224}, {"rounds": 5, "steps": 12})
    if args.prepare:
        in_turn.export(model(args), dict(zip(INPUTS, data(args))), args.prepare)
    elif args.peer:
        peer(args)
    else:
        ways = [way + " autocast" * ("bf16" in args.options) for way in WAYS]
        in_turn.compare(args, dict.fromkeys(ways, True), args.name or "convolutions-" + args.model)


if __name__ == "__main__":
    main()
