#!/usr/bin/env python3
"""The peer of bench/step.py: trains the same model in PyTorch, on the same machine.

    pytorch.py step MODEL BATCH SEQUENCE MODE STEPS DEVICE
        prints the seconds of each step and the peak of memory, resident or on the device, as JSON
    pytorch.py export MODEL OUT.onnx
        writes the same model for libprotrain, with its weights in OUT.onnx.data

MODEL: gpt2-124m, gpt2-350m, gpt2-1.5b, llama-134m, llama-1.1b, or FAMILY:LAYERS:WIDTH:HEADS:VOCABULARY[:GROUPS:INNER].
For a llama GROUPS is the number of key and value heads, and INNER the width inside the MLP. Trains with AdamW on random
tokens, without dropout.
MODE: fp32; autocast: bf16 arithmetic over fp32 weights; bf16: weights and moments in bf16, no master copy; compiled,
compiled-autocast, compiled-bf16: the same by torch.compile. loraRANK-autocast, as in lora16-autocast: PEFT's adapters of
all projections, in fp32, on a frozen base in bf16; loraRANK-fp32: on one in fp32, without autocast. ipex-fp32,
ipex-autocast, loraRANK-ipex-autocast: optimized by Intel's extension for PyTorch, whose bf16 weights are split from the
rest of their masters.
Needs torch and transformers (onnxscript to export, peft for adapters), all from PyPI."""
import json
import re
import resource
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from models import MODELS

LONGEST = 4096


def make(name):
    family, *sizes = MODELS.get(name, name).split(":")
    layers, width, heads, vocabulary, *more = map(int, sizes)
    groups, inner = more or (heads, width * 8 // 3 // 64 * 64)
    torch.manual_seed(0)
    if family == "gpt2":
        config = AutoConfig.for_model("gpt2", n_embd=width, n_layer=layers, n_head=heads, vocab_size=vocabulary,
                                      resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    else:
        config = AutoConfig.for_model("llama", hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                                      num_key_value_heads=groups, intermediate_size=inner,
                                      vocab_size=vocabulary, max_position_embeddings=LONGEST)
    config.use_cache = False
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").train(), vocabulary


class WithLoss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, labels):
        logits = self.model(input_ids=input_ids, use_cache=False).logits.float()
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def with_adapters(model, rank):
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=rank, target_modules=r".*(_proj|c_attn|c_proj|c_fc)"))


def step(name, batch, sequence, mode, steps, device):
    on_gpu = device != "cpu"
    with torch.device(device):
        model, vocabulary = make(name)
    if mode.endswith("bf16"):
        model = model.bfloat16()
    if lora := re.match(r"lora(\d+)-", mode):
        model = with_adapters(model.bfloat16() if mode.endswith("autocast") else model, int(lora[1]))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    if "ipex" in mode:
        import intel_extension_for_pytorch as ipex

        narrow = torch.bfloat16 if mode.endswith("autocast") else torch.float32
        model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=narrow)
    with_loss = WithLoss(model)
    forward = torch.compile(with_loss) if mode.startswith("compiled") else with_loss
    ids = torch.randint(3, vocabulary, (batch, sequence), device=device)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=mode.endswith("autocast")):
            loss = forward(ids, ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_reserved() if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "threads": torch.get_num_threads(), "torch": torch.__version__}))


def export(name, path):
    model, vocabulary = make(name)
    ids = torch.randint(3, vocabulary, (2, 16))
    sizes = {0: torch.export.Dim("batch", max=1024), 1: torch.export.Dim("sequence", max=1024)}
    torch.onnx.export(WithLoss(model), (ids, ids.clone()), path, input_names=["input_ids", "labels"], output_names=["loss"],
                      dynamic_shapes={"input_ids": sizes, "labels": sizes}, dynamo=True, external_data=True)


if __name__ == "__main__":
    if len(sys.argv) == 8 and sys.argv[1] == "step":
        step(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]), sys.argv[7])
    elif len(sys.argv) == 4 and sys.argv[1] == "export":
        export(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
