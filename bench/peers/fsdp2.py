#!/usr/bin/env python3
"""The peer of models that do not fit on a GPU: trains with PyTorch's FSDP2 and CPUOffloadPolicy, in one process.

    fsdp2.py MODEL BATCH SEQUENCE STEPS [clip]

MODEL: llama-3b, mistral-7b, or a llama as in pytorch.py. Parameters, gradients and AdamW's moments rest in pinned host
memory, in fp32; arithmetic is bfloat16; every block is checkpointed; AdamW runs on the CPU, fused. clip: gradients are
clipped to a norm of 1. Prints each step's seconds, and all of them with the peaks of memory as JSON. Weights are random
numbers that repeat. Needs torch and transformers, and a GPU (without one it runs on the CPU, which only tries it)."""
import json
import os
import resource
import sys
import time

import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from pytorch import make

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def sharded(name):
    """A model whose parameters FSDP2 keeps on the host, filled with numbers."""
    with torch.device("meta"):
        model, _ = make(name)
    config = model.config
    if config.model_type != "llama":
        raise SystemExit(f"{name}: only llamas are known here")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = dict(mesh=init_device_mesh(DEVICE, (1,)),
                  mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
                  offload_policy=CPUOffloadPolicy(pin_memory=DEVICE == "cuda"))
    for layer in model.model.layers:
        fully_shard(layer, **policy)
    fully_shard(model, **policy)
    model.to_empty(device="cpu")
    numbers = torch.empty(1 << 24).uniform_(-0.03, 0.03)
    with torch.no_grad():
        for parameter in model.parameters():
            flat = parameter.to_local().view(-1)
            for at in range(0, flat.numel(), numbers.numel()):
                part = flat[at:at + numbers.numel()]
                part.copy_(numbers[:part.numel()]) if parameter.dim() > 1 else part.fill_(1)
    rotary, depth = model.model.rotary_emb, config.hidden_size // config.num_attention_heads
    rotary.inv_freq = (1 / 10000 ** (torch.arange(0, depth, 2).float() / depth)).to(DEVICE)
    rotary.original_inv_freq = rotary.inv_freq
    return model


def step(model, optimizer, ids, clip):
    logits = model(input_ids=ids, use_cache=False).logits.float()
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    del logits
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def main(name, batch, sequence, steps, clip):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29513")
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if DEVICE == "cuda" else "gloo", rank=0, world_size=1)
    model = sharded(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(3, model.config.vocab_size, (batch, sequence), device=DEVICE)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step(model, optimizer, ids, clip)
        seconds.append(time.perf_counter() - start)
        print(f"{seconds[-1]:.2f} s", file=sys.stderr, flush=True)
    torch.distributed.destroy_process_group()
    print(json.dumps({"seconds": seconds, "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
                      "device_peak_bytes": torch.cuda.max_memory_reserved() if DEVICE == "cuda" else 0,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6) or sys.argv[5:] not in ([], ["clip"]):
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:5]), len(sys.argv) == 6)
