"""Writes the arrays of data_test.sh into the present folder.

    arrays.py FIXTURES

The same values in every form that --input takes: batches and samples, types, orders, a folder, safetensors.
"""
import itertools
import json
import math
import os
import random
import struct
import sys

CODES = {"<i8": "q", "<i4": "i", "<u2": "H", "<u8": "Q", "|u1": "B", "|b1": "?", "<f4": "f", "<f8": "d", "<f2": "e"}


def write_npy(path, descr, shape, values, column_major=False):
    if column_major:
        places = itertools.product(*(range(size) for size in reversed(shape)))
        strides = [1] * len(shape)
        for axis in reversed(range(len(shape) - 1)):
            strides[axis] = strides[axis + 1] * shape[axis + 1]
        values = [values[sum(i * s for i, s in zip(reversed(place), strides))] for place in places]
    header = str({"descr": descr, "fortran_order": column_major, "shape": tuple(shape)}).encode() + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        file.write(struct.pack(f"<{len(values)}{CODES[descr]}", *values))


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"made": "by a test"}}, b""
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def tokens(fixtures):
    tensors = {}
    for name in ("input_ids", "labels"):
        with open(os.path.join(fixtures, name + ".npy"), "rb") as file:
            values = struct.unpack("<640q", file.read()[-640 * 8:])
        write_npy(f"{name}.i4.npy", "<i4", (10, 2, 32), values)
        if name == "input_ids":
            write_npy("input_ids.u2.npy", "<u2", (10, 2, 32), values)
        write_npy(f"{name}.column-major.npy", "<i8", (10, 2, 32), values, column_major=True)
        write_npy(f"{name}.samples.npy", "<i8", (20, 32), values)
        write_npy(f"{name}.samples.column-major.npy", "<i4", (20, 32), values, column_major=True)
        write_npy(f"{name}.eighteen.npy", "<i8", (18, 32), values[:18 * 32])
        os.makedirs("folder", exist_ok=True)
        write_npy(f"folder/{name}.npy", "<i8", (10, 2, 32), values)
        tensors[name] = ("I32", [20, 32], struct.pack("<640i", *values))
    write_npy("labels.narrow.npy", "<i8", (20, 16), values[:20 * 16])
    for name, shape in {"samples": (20, 32), "nineteen": (19, 32), "batches": (10, 2, 32), "nine": (9, 2, 32), "one": (1, 2, 32)}.items():
        write_npy(f"mask.{name}.npy", "<i8", shape, [1] * math.prod(shape))
    write_npy("ids.npy", "<i8", (2, 64), [1] * 128)
    write_npy("nan.npy", "<f4", (2, 3), [-float("nan")] * 6)
    with open("objects.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00\x40\x00" + b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }".ljust(63) + b"\n")
    write_npy("twenty.npy", "<i8", (20, 1, 32), values)
    write_npy("floats.npy", "<f4", (20, 32), [1.0] * 640)
    write_npy("large.npy", "<u8", (20, 32), [1 << 63] * 640)
    write_safetensors("tokens.safetensors", tensors | {"other": ("F32", [1], struct.pack("<f", 1))})
    write_safetensors("other.safetensors", {"other": ("F32", [1], struct.pack("<f", 1))})
    write_safetensors("outside.safetensors", {"input_ids": ("I64", [20, 32], b"short"), "labels": tensors["labels"]})


def images():
    dice = random.Random(1)
    values, labels = [dice.randrange(256) for _ in range(6 * 768)], [dice.randrange(3) for _ in range(6)]
    write_npy("pixels.npy", "<f4", (3, 2, 3, 16, 16), values)
    write_npy("classes.npy", "<i8", (3, 2), labels)
    for descr in ("|u1", "<f8", "<f2"):
        write_npy(f"pixels.{descr[1:]}.npy", descr, (6, 3, 16, 16), values)
    write_npy("pixels.column-major.npy", "<f8", (6, 3, 16, 16), values, column_major=True)
    write_npy("classes.u1.npy", "|u1", (6,), labels)
    write_npy("many.npy", "<f4", (2, 252, 3, 16, 16), values * 84)
    write_npy("many-classes.npy", "<i8", (2, 252), labels * 84)
    upper = b"".join(struct.pack("<f", value)[2:] for value in values)  # bfloat16 holds 0 to 256 exactly
    write_safetensors("images.safetensors", {"pixel_values": ("BF16", [6, 3, 16, 16], upper),
                                             "labels": ("U8", [6], bytes(labels))})


if __name__ == "__main__":
    tokens(sys.argv[1])
    images()
