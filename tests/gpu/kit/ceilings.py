"""Measures the ceilings of a GPU with PyTorch: copies, products of the models' sizes on a warm GPU, attention, the bus."""
import ctypes
import time

import torch

ATTRIBUTES = {"pageable memory access": 88, "host pointer of registered memory": 91}
PRODUCTS = ((8192, 8192, 8192, 5), (8192, 4800, 1600, 1), (8192, 1600, 1600, 1), (8192, 6400, 1600, 1),
            (8192, 1600, 6400, 1), (1600, 6400, 8192, 1), (8192, 5632, 2048, 1), (8192, 256, 2048, 1), (2048, 5632, 8192, 1))
HEADS = ((25, 25, 64), (32, 4, 64), (32, 8, 128))  # queries, keys and values, depth


def seconds_of(work, at_least=1.0):
    work()
    torch.cuda.synchronize()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < at_least:
        for _ in range(5):
            work()
        count += 5
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def attention(heads, groups, depth, batch=8, length=1024):
    q, k, v = (random(batch, count, length, depth).requires_grad_() for count in (heads, groups, groups))
    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=groups != heads)
    gradient = torch.randn_like(forward())
    flops = 2 * batch * heads * length * length * depth
    there = seconds_of(forward, 0.5)
    back = seconds_of(lambda: torch.autograd.grad(forward(), (q, k, v), gradient), 0.5) - there
    print(f"attention {heads}/{groups} x {depth}: forward {there * 1e6:.0f} us, {flops / there / 1e12:.0f} TFLOP/s; "
          f"backward {back * 1e6:.0f} us, {2.5 * flops / back / 1e12:.0f} TFLOP/s")


def main():
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    for name, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
        print(f"{name}: {value.value}")
    x = torch.empty(1 << 32, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    print(f"copy on the device: {2 * x.numel() / seconds_of(lambda: y.copy_(x)) / 1e12:.2f} TB/s")
    del x, y
    for m, n, k, at_least in PRODUCTS:
        a, b = random(m, k), random(k, n)
        print(f"product {m} x {n} x {k}: {2 * m * n * k / seconds_of(lambda: a @ b, at_least) / 1e12:.0f} TFLOP/s")
    table, gradients, x = random(50304, 1600), random(8192, 50304), random(8192, 1600)
    for classes in (50257, 50264, 50304):  # GPT-2's head; rows lie equally far apart
        g, w = gradients[:, :classes], table[:classes]
        flops = 2 * 8192 * classes * 1600
        print(f"head of {classes} classes: dx {flops / seconds_of(lambda: g @ w, 0.5) / 1e12:.0f}, "
              f"dw {flops / seconds_of(lambda: g.T @ x, 0.5) / 1e12:.0f} TFLOP/s")
    del table, gradients, x
    for shape in HEADS:
        attention(*shape)
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    up = seconds_of(lambda: there.copy_(host, non_blocking=True))
    down = seconds_of(lambda: host.copy_(there, non_blocking=True))
    other_host, other_there = torch.empty_like(host, pin_memory=True), torch.empty_like(there)
    streams = torch.cuda.Stream(), torch.cuda.Stream()

    def both():
        with torch.cuda.stream(streams[0]):
            there.copy_(host, non_blocking=True)
        with torch.cuda.stream(streams[1]):
            other_host.copy_(other_there, non_blocking=True)

    together = seconds_of(both)
    print(f"bus: up {host.numel() / up / 1e9:.1f}, down {host.numel() / down / 1e9:.1f}, both ways "
          f"{2 * host.numel() / together / 1e9:.1f} GB/s")


main()
