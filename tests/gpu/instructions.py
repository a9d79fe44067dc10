#!/usr/bin/env python3
"""Counts the instructions of compiled kernels. It needs no GPU, but it needs cuobjdump, from the CUDA toolkit or the
package nvidia-cuda-cuobjdump. The variable CUOBJDUMP gives its path, if it is not on the PATH.

    tests/gpu/instructions.py FILE [--json] [--through OPERATION] [NAME=BYTES ...]

FILE is the plugin, or an object file of it (BUILD/CMakeFiles/protrain_cuda.dir/src/backend/cuda/unary.cu.o). NAME is a
part of a kernel's name as c++filt prints it, without blanks and "protrain::backend::cuda::". BYTES is the number of
bytes that are stored for an element. Without any NAME it takes the kernels that docs/cuda.md has figures for.

The script reads the code of a kernel and does not run it. It looks for the hot loop: the innermost loop that stores
most bytes to device memory, from the target of a backward jump to that jump. Without such a loop, it takes the whole
kernel. It prints:
  registers, stack     registers of a thread, and bytes of its stack, which hold values that registers have no room for
  elements             elements of one turn of the loop: the bytes that the turn stores, divided by BYTES
  instructions         instructions of one turn, divided by its elements. Code that may be jumped over counts, an inner
                       loop counts once, and called code (the slow path of an exact division) does not count
  least                the same for the shortest path through the loop to its last store. With --through I2F.U32 this
                       path must contain such an operation: one 32-bit division, which an index with two dims needs
  loads, stores        accesses of device memory in one turn, by width in bytes
  bytes                bytes loaded and stored per element"""
import argparse
import collections
import json
import os
import re
import shutil
import subprocess
import sys

KERNELS = {
    "value_kernel<arith::Gelu,bf16>": 2, "slope_kernel<arith::Gelu,bf16>": 2,
    "value_kernel<arith::GeluTanh,bf16>": 2, "slope_kernel<arith::GeluTanh,bf16>": 2,
    "value_kernel<arith::Silu,bf16>": 2, "slope_kernel<arith::Silu,bf16>": 2, "grad_kernel<arith::Silu,bf16>": 4,
    "binary_kernel<8,arith::Add,bf16,bf16,bf16>": 2, "where_kernel<8,unsignedshort>": 2, "move_kernel<WidestUnit>": 2,
}
CUOBJDUMP = os.environ.get("CUOBJDUMP", "cuobjdump")
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+((?:@!?U?P\w+\s+)?)([A-Z][\w.]*)\s*(.*?)\s*;")
WIDTH = re.compile(r"\.(U8|S8|U16|S16|64|128)\b")
BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def output_of(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def short(name):
    """A kernel's name without the parts that all names share."""
    name = re.sub(r"protrain::|backend::cuda::|\(anonymous namespace\)::|binary::|^void ", "", name)
    name = re.sub(r"\barith::bf16\b|\bbf16\b", "bf16", name).replace(" ", "")
    return name[:name.index(">(") + 1] if ">(" in name else name.split("(")[0]


def kernels_of(path):
    """The code of each kernel by its short name: [(address, operation, operands, whether it has no predicate)]."""
    code, name = {}, None
    for line in output_of(CUOBJDUMP, "-sass", path).splitlines():
        if "Function :" in line:
            name = line.split("Function :")[1].strip()
            code[name] = []
        elif name and (found := LINE.search(line)):
            code[name].append((int(found[1], 16), found[3], found[4], not found[2]))
    resources = dict(re.findall(r"Function (\S+):\s*\n\s*(.*)", output_of(CUOBJDUMP, "-res-usage", path)))
    plain = subprocess.run(["c++filt"], input="\n".join(code), capture_output=True, text=True, check=True).stdout.split("\n")
    return {short(p): (code[n], resources.get(n, "")) for n, p in zip(code, plain)}


def touched(code, operation):
    """The number of accesses of device memory by width in bytes."""
    widths = collections.Counter()
    for _, name, _, _ in code:
        if name.split(".")[0] == operation:
            width = WIDTH.search(name)
            widths[BYTES[width[1]] if width else 4] += 1
    return widths


def stored(code):
    return sum(width * count for width, count in touched(code, "STG").items())


def target(name, operands):
    """The target address of a jump, or None for other instructions."""
    found = re.search(r"0x([0-9a-f]+)", operands) if name.startswith("BRA") else None
    return int(found[1], 16) if found else None


def hot_loop(code):
    loops = []
    for at, name, operands, _ in code:
        to = target(name, operands)
        if to is not None and to < at:
            loops.append([row for row in code if to <= row[0] <= at])
    loops = [loop for loop in loops if stored(loop)]
    inner = [a for a in loops if not any(b is not a and a[0][0] <= b[0][0] and b[-1][0] < a[-1][0] for b in loops)]
    return max(inner, key=stored, default=code)


def least(loop, through):
    """The number of instructions on the shortest path from the loop's begin to its end that passes an instruction
    `through`, if one is given, and then the last store."""
    at = {row[0]: index for index, row in enumerate(loop)}
    last_store = max((index for index, row in enumerate(loop) if row[1].startswith("STG")), default=len(loop) - 1)
    wanted = [lambda index: loop[index][1].startswith(through)] * bool(through) + [lambda index: index == last_store]
    states, seen, steps = [(0, 0)], set(), 0
    while states:
        steps, following = steps + 1, []
        for index, met in states:
            met += met < len(wanted) and wanted[met](index)
            if index == len(loop) - 1 and met == len(wanted):
                return steps
            _, name, operands, always = loop[index]
            to = target(name, operands)
            ways = [] if to is not None and always or name == "EXIT" and always else [index + 1]
            ways += [at[to]] if to in at else []
            following += [(way, met) for way in ways if way < len(loop)]
        states = [state for state in dict.fromkeys(following) if state not in seen]
        seen.update(states)
    return None


def count(code, resources, bytes_of_element, through):
    loop = hot_loop(code)
    elements = stored(loop) / bytes_of_element
    loads, stores = touched(loop, "LDG"), touched(loop, "STG")
    fewest = least(loop, through)
    moved = sum(width * number for widths in (loads, stores) for width, number in widths.items())
    return {"registers": int(re.search(r"REG:(\d+)", resources)[1]), "stack": int(re.search(r"STACK:(\d+)", resources)[1]),
            "elements": elements, "instructions": round(len(loop) / elements, 1),
            "least": fewest and round(fewest / elements, 1), "bytes": round(moved / elements, 2),
            "loads": dict(loads), "stores": dict(stores)}


def main():
    if not shutil.which(CUOBJDUMP):
        sys.exit(f"there is no {CUOBJDUMP}; pip install nvidia-cuda-cuobjdump has it")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("names", nargs="*", metavar="NAME=BYTES")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--through", default="", metavar="OPERATION")
    arguments = parser.parse_intermixed_args()
    wanted = {name: int(size) for name, _, size in (word.rpartition("=") for word in arguments.names)} or KERNELS
    rows = {}
    for name, (code, resources) in sorted(kernels_of(arguments.file).items()):
        for part, size in wanted.items():
            if part in name:
                rows[name] = count(code, resources, size, arguments.through)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    for name, row in rows.items():
        print(name, " ".join(f"{key} {value}" for key, value in row.items()))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
