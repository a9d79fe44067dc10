#!/usr/bin/env python3
"""Compares a training step of a recurrent layer with PyTorch's, in turn, on the same machine.

    bench/recurrent.py PROTRAIN PYTHON [--cell LSTM] [--units 256] [--features 256] [--sequence 64] [--batch 32]
                       [--layers 1] [--directions 1] [--rounds 5] [--steps 40] [--name recurrent] [-- OPTION ...]

PYTHON has torch and onnxscript. The model is nn.LSTM, nn.GRU or nn.RNN, and the mean squared difference of its output
from a target, with AdamW, in float32. A round runs every contender once, in a process of its own, one after the other. The
median and the fastest of the second half of its steps are its times. PyTorch runs in several ways, and its best one in
each round counts: with oneDNN's recurrent layers and without, each as it is and with Intel's MKL told that the processor is
Intel's, which makes MKL faster. A way that PyTorch cannot run is recorded with its error. Results:
bench/results/NAME.json"""
import in_turn

WAYS = {"onednn": False, "plain": False, "onednn mkl": True, "plain mkl": True}  # True: with MKL told of an Intel
INPUTS = ("x", "target")
SIZES = {"units": 256, "features": 256, "sequence": 64, "batch": 32, "layers": 1, "directions": 1}


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


def data(args):
    """Four batches."""
    import numpy

    drawn = numpy.random.default_rng(1)
    shape = (4, args.sequence, args.batch)
    return [drawn.standard_normal((*shape, width), numpy.float32) for width in (args.features, args.units * args.directions)]


def peer(args):
    import torch

    torch.backends.mkldnn.enabled = "onednn" in args.peer
    layer = model(args)
    in_turn.train(layer.parameters(), layer, list(zip(*(torch.from_numpy(values) for values in data(args)))), args.steps)


def main():
    args = in_turn.arguments(__doc__, "cell", ("LSTM", "GRU", "RNN"), SIZES, {"rounds": 5, "steps": 40})
    if args.prepare:
        in_turn.export(model(args), dict(zip(INPUTS, data(args))), args.prepare)
    elif args.peer:
        peer(args)
    else:
        in_turn.compare(args, WAYS, args.name or "recurrent")


if __name__ == "__main__":
    main()
