"""Shared by the scripts of this folder: the machine, data, runs of the command, results."""
import json
import os
import platform
import random
import re
import shlex
import struct
import subprocess

GIB = 1 << 30
REFUSAL = re.compile(r"no plan fits: the smallest needs (\d+) bytes \([^)]*\) of (\w+), and there are (\d+)")


# Variables that keep a library from the widest instructions of the processor.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")


def machine():
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    flags = next((line.split() for line in open("/proc/cpuinfo") if line.startswith("flags")), [])
    widest = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags), "?")
    limits = {name: os.environ[name] for name in LIMITS if name in os.environ}
    return {"processor": cpu, "instructions": widest, "processors": os.cpu_count(), "memory_bytes": memory,
            "system": platform.platform(), **({"limits": limits} if limits else {})}


def results_folder():
    """bench/results, or the folder that PROTRAIN_BENCH_RESULTS names."""
    return os.environ.get("PROTRAIN_BENCH_RESULTS") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


def save(name, figures):
    """Writes results. Of a path among the options only the last part is kept, because a result is no place for the
    folders of one machine."""
    if isinstance(figures.get("options"), list):
        words = [os.path.basename(word) if os.path.isabs(str(word)) else word for word in figures["options"]]
        figures = dict(figures, options=words)
    os.makedirs(results_folder(), exist_ok=True)
    path = os.path.join(results_folder(), name + ".json")
    with open(path, "w") as file:
        json.dump(dict({"machine": machine()}, **figures), file, indent=1)
        file.write("\n")
    print(f"-> {os.path.relpath(path)}")


def write_tokens(path, count, below):
    """Raw uint16 token ids, for --tokens."""
    source = random.Random(1)
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{count}H", *(source.randrange(below) for _ in range(count))))


def write_array(path, shape, values):
    """Writes a .npy file of int64."""
    header = str({"descr": "<i8", "fortran_order": False, "shape": tuple(shape)}).encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(struct.pack(f"<{len(values)}q", *values))


def run(words, environment=None):
    return subprocess.run(words, capture_output=True, text=True, env=environment)


def preload_for_mkl(folder):
    """Returns the path of a library that tells Intel's MKL that the processor is Intel's. With it in LD_PRELOAD, MKL, and
    so PyTorch, computes faster on other processors."""
    source, library = os.path.join(folder, "intel.c"), os.path.join(folder, "intel.so")
    with open(source, "w") as file:
        file.write("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    run(["cc", "-shared", "-fPIC", "-o", library, source])
    return library


def run_measured(words):
    """Returns the exit status, negative for a signal, and the largest resident size."""
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss << 10


def plan(protrain, model, options):
    """The answer of `protrain plan --json`, whether or not anything fits."""
    done = run([protrain, "plan", model, "--json"] + options)
    if not done.stdout:
        raise SystemExit(f"{shlex.join(done.args)}\n{done.stderr}")
    return json.loads(done.stdout)


def resting_bytes(timeline):
    """Bytes that weights and optimizer state take at the begin of a step, in all memories together."""
    of = [1 + timeline["owners"].index(owner) for owner in ("weights", "optimizer")]
    return sum(points[0][i] for tier, points in timeline.items() if tier != "owners" and points for i in of)


def last_line(text):
    return text.strip().splitlines()[-1] if text.strip() else ""


def size(number):
    return f"{number / GIB:.2f} GiB" if number >= GIB else f"{number / (1 << 20):.2f} MiB"
