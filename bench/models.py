#!/usr/bin/env python3
"""Compares a training step of models of several kinds with PyTorch's, in turn, on the same machine.

    bench/models.py PROTRAIN PYTHON [--model bert-base] [--batch 0] [--rounds 3] [--steps 8] [--name model-MODEL]
                    [-- OPTION ...]

PYTHON has torch, transformers and onnxscript. MODELS has the models, each with random weights, a loss, AdamW, and a batch
of its own if --batch is 0. Dropout is off. We run in float32, and with `-- --precision bf16` in bfloat16; PyTorch runs in
the same precision, eager and compiled, and its best way in each round counts. A round runs every contender once, in a
process of its own, one after the other. The median and the fastest of the second half of its steps are its times. Intel's
MKL is always told that the processor is Intel's, which makes it faster. A way that PyTorch cannot run is recorded with its
error. The MLP, whose steps are short (take --steps 1000), runs beside a program in plain C too, peers/mlp.c.
Results: bench/results/NAME.json"""
import os
import tempfile

import in_turn
import support

FP32 = dict.fromkeys(("eager", "compiled"), True)  # MKL told of an Intel
BF16 = dict.fromkeys(("autocast", "compiled autocast"), True)
PLAIN = {"plain C": False}
BATCHES = 2


def tokens(drawn, below, *shape):
    return drawn.integers(3, below, (BATCHES, *shape))


def floats(drawn, *shape):
    return drawn.standard_normal((BATCHES, *shape), "float32")


def bert_base(batch):
    """Masked words: BERT-base, 128 tokens."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    return (lambda: with_loss(BertForMaskedLM(config), lambda m, ids, labels: m(input_ids=ids, labels=labels).loss),
            lambda drawn: {"ids": tokens(drawn, 30000, batch, 128), "labels": tokens(drawn, 30000, batch, 128)})


def vit_b16(batch):
    """Classes of images: ViT-B/16, 224 x 224."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=10)
    return (lambda: with_loss(ViTForImageClassification(config), classified),
            lambda drawn: {"image": floats(drawn, batch, 3, 224, 224), "labels": drawn.integers(0, 10, (BATCHES, batch))})


def classified(model, image, labels):
    import torch

    return torch.nn.functional.cross_entropy(model(image).logits, labels)


def whisper_tiny(batch):
    """Speech to text: Whisper-tiny, 30 seconds of sound, 64 tokens."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
                           decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, dropout=0, use_cache=False)

    def loss(model, sound, ids, labels):
        return model(input_features=sound, decoder_input_ids=ids, labels=labels).loss

    return (lambda: with_loss(WhisperForConditionalGeneration(config), loss),
            lambda drawn: {"sound": floats(drawn, batch, 80, 3000), "ids": tokens(drawn, 50000, batch, 64),
                           "labels": tokens(drawn, 50000, batch, 64)})


def dlrm(batch):
    """Clicks: DLRM with 8 tables of 20,000 rows, 64 features, and all their products in pairs."""
    import torch
    from torch import nn

    def mlp(*widths):
        layers = [layer for i, o in zip(widths, widths[1:]) for layer in (nn.Linear(i, o), nn.ReLU())]
        return nn.Sequential(*layers)

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(20000, 64) for _ in range(8))
            self.dense = mlp(13, 512, 256, 64)
            self.top = mlp(64 + 81, 512, 256)
            self.last = nn.Linear(256, 1)

        def forward(self, dense, sparse):
            x = self.dense(dense)
            features = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
            pairs = (features @ features.transpose(1, 2)).flatten(1)
            return self.last(self.top(torch.cat([x, pairs], 1))).squeeze(1)

    def loss(model, dense, sparse, clicked):
        return nn.functional.binary_cross_entropy_with_logits(model(dense, sparse), clicked)

    return (lambda: with_loss(Dlrm(), loss),
            lambda drawn: {"dense": floats(drawn, batch, 13), "sparse": drawn.integers(0, 20000, (BATCHES, batch, 8)),
                           "clicked": drawn.integers(0, 2, (BATCHES, batch)).astype("float32")})


def mlp(batch):
    """A small step: an MLP of 10,000 parameters."""
    from torch import nn

    def net():
        return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 10))

    return (lambda: with_loss(net(), lambda m, x, labels: nn.functional.cross_entropy(m(x), labels)),
            lambda drawn: {"x": floats(drawn, batch, 64), "labels": drawn.integers(0, 10, (BATCHES, batch))})


def tiny_gpt2(batch):
    """A small step: a GPT-2 of two layers of 64 features, 32 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0,
                        attn_pdrop=0, use_cache=False)
    return (lambda: with_loss(GPT2LMHeadModel(config), lambda m, ids, labels: m(input_ids=ids, labels=labels).loss),
            lambda drawn: {"ids": tokens(drawn, 256, batch, 32), "labels": tokens(drawn, 256, batch, 32)})


# Each model, and its batch.
MODELS = {"bert-base": (bert_base, 8), "vit-b16": (vit_b16, 4), "whisper-tiny": (whisper_tiny, 1), "dlrm": (dlrm, 512),
          "mlp": (mlp, 32), "tiny-gpt2": (tiny_gpt2, 4)}


def with_loss(model, loss):
    import torch

    class Trained(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, *inputs):
            return loss(self.m, *inputs)

    return Trained()


def made(args):
    """Returns the model and its inputs {name: (batches, ...)}."""
    import numpy
    import torch

    make, batch = MODELS[args.model]
    torch.manual_seed(0)
    model, data = make(args.batch or batch)
    return model().train(), data(numpy.random.default_rng(1))


def plain(batch, steps):
    """Runs the MLP's program in plain C, which prints the seconds of its steps."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "mlp.c")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mlp")
        words = ["cc", "-O3", "-march=native", "-ffast-math", "-o", program, source, "-lm"]
        for command in (words, [program, str(batch), str(steps)]):
            done = support.run(command)
            if done.returncode:
                raise SystemExit(done.stderr)
        print(done.stdout)


def peer(args):
    if args.peer in PLAIN:
        return plain(args.batch or MODELS[args.model][1], args.steps)
    import torch

    model, inputs = made(args)
    batches = list(zip(*(torch.from_numpy(values) for values in inputs.values())))
    compute = torch.compile(model) if "compiled" in args.peer else model

    in_turn.train(model.parameters(), compute, batches, args.steps, "autocast" in args.peer)


def main():
    args = in_turn.arguments(__doc__, "model", tuple(MODELS), {"batch": 0}, {"rounds": 3, "steps": 8})
    if args.prepare:
        in_turn.export(*made(args), args.prepare, dynamo=True)
    elif args.peer:
        peer(args)
    else:
        ways = BF16 if "bf16" in args.options else {**FP32, **(PLAIN if args.model == "mlp" else {})}
        in_turn.compare(args, ways, args.name or "model-" + args.model)


if __name__ == "__main__":
    main()
