#!/usr/bin/env python3
"""A peer of bench/step.py: trains GPT-2 in JAX, on the same machine.

    jax_training.py step MODEL BATCH SEQUENCE MODE STEPS DEVICE
        prints the seconds of each step and the peak of resident memory, as JSON

MODEL: gpt2-124m, gpt2-350m, gpt2-1.5b, or gpt2:LAYERS:WIDTH:HEADS:VOCABULARY. MODE: jax-fp32; jax-bf16: bfloat16 arithmetic over
float32 weights. DEVICE: cpu. A step is one compiled function, which gets the memory of the old weights and moments for
the new ones. Trains with optax's AdamW on random tokens, without dropout. Needs jax and optax from PyPI."""
import json
import os
import resource
import sys
import time

import jax
import jax.numpy as jnp
import optax

from models import MODELS

LONGEST = 1024


def weights_of(layers, width, vocabulary):
    key = jax.random.key(0)

    def normal(*shape):
        nonlocal key
        key, own = jax.random.split(key)
        return 0.02 * jax.random.normal(own, shape)

    norm = {"scale": jnp.ones(width), "bias": jnp.zeros(width)}
    blocks = [{"ln_1": norm, "ln_2": norm,
               "qkv": normal(width, 3 * width), "qkv_bias": jnp.zeros(3 * width),
               "out": normal(width, width), "out_bias": jnp.zeros(width),
               "up": normal(width, 4 * width), "up_bias": jnp.zeros(4 * width),
               "down": normal(4 * width, width), "down_bias": jnp.zeros(width)} for _ in range(layers)]
    return jax.tree.map(jnp.array, {"tokens": normal(vocabulary, width), "positions": normal(LONGEST, width),
                                    "blocks": blocks, "ln": norm})


def normalized(x, norm):
    wide = x.astype(jnp.float32)
    centered = wide - wide.mean(-1, keepdims=True)
    scaled = centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)
    return (scaled * norm["scale"] + norm["bias"]).astype(x.dtype)


def loss_of(weights, ids, heads, dtype):
    narrow = jax.tree.map(lambda w: w.astype(dtype), weights)
    batch, sequence = ids.shape
    x = narrow["tokens"][ids] + narrow["positions"][:sequence]
    for block, wide in zip(narrow["blocks"], weights["blocks"]):
        q, k, v = jnp.split((normalized(x, wide["ln_1"]) @ block["qkv"] + block["qkv_bias"])
                            .reshape(batch, sequence, 3 * heads, -1), 3, axis=2)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape)
        x = x + mixed @ block["out"] + block["out_bias"]
        hidden = jax.nn.gelu(normalized(x, wide["ln_2"]) @ block["up"] + block["up_bias"])
        x = x + hidden @ block["down"] + block["down_bias"]
    logits = (normalized(x, weights["ln"]) @ narrow["tokens"].T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], ids[:, 1:]).mean()


def step(name, batch, sequence, mode, steps, device):
    if device != "cpu":
        sys.exit("this peer was written for processors")
    family, *sizes = MODELS.get(name, name).split(":")
    if family != "gpt2":
        sys.exit("this peer trains GPT-2 alone")
    layers, width, heads, vocabulary = map(int, sizes)
    dtype = jnp.bfloat16 if mode == "jax-bf16" else jnp.float32
    weights = weights_of(layers, width, vocabulary)
    optimizer = optax.adamw(1e-4)
    state = optimizer.init(weights)

    def one(weights, state, ids):
        loss, gradients = jax.value_and_grad(loss_of)(weights, ids, heads, dtype)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    compiled = jax.jit(one, donate_argnums=(0, 1))
    ids = jax.random.randint(jax.random.key(1), (batch, sequence), 3, vocabulary)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        weights, state, loss = compiled(weights, state, ids)
        loss.block_until_ready()
        jax.block_until_ready(weights)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "threads": len(os.sched_getaffinity(0)), "jax": jax.__version__,
                      "loss": float(loss)}))


if __name__ == "__main__":
    if len(sys.argv) != 8 or sys.argv[1] != "step":
        sys.exit(__doc__)
    step(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], int(sys.argv[6]), sys.argv[7])
