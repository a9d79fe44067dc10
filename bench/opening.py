#!/usr/bin/env python3
"""Compares the cost of opening a model with that of reading its file.

    bench/opening.py LIBPROTRAIN.so MODEL.onnx [OPTION=VALUE ...]

MODEL.onnx has its weights in MODEL.onnx.data. Two things run in turn, several times: one thread reads the bytes of both
files into memory in pieces of 16 MiB, and a session is created and destroyed. First the files are not in the page
cache, so both wait for the disk. Then they are, so both wait for memory. Kernels are timed beforehand, because a
machine does that once. Results: bench/results/opening.json"""
import ctypes
import mmap
import os
import sys
import time

import support

ROUNDS = 5
PIECE = 16 << 20


def read(paths):
    for path in paths:
        size = os.path.getsize(path)
        with open(path, "rb", buffering=0) as file, mmap.mmap(-1, size) as memory, memoryview(memory) as view:
            at = 0
            while at < size:
                at += file.readinto(view[at:at + PIECE])


def forget(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        for name in ("options_create", "options_set", "session_create"):
            getattr(self.c, "protrain_" + name).restype = ctypes.c_void_p
        self.c.protrain_error_text.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        error = getattr(self.c, "protrain_" + name)(*arguments)
        if error:
            raise SystemExit(self.c.protrain_error_text(ctypes.c_void_p(error)).decode())

    def options(self, words):
        options = ctypes.c_void_p()
        self.call("options_create", ctypes.byref(options))
        for word in words:
            key, _, value = word.partition("=")
            self.call("options_set", options, key.encode(), value.encode())
        return options

    def open(self, options, model):
        session = ctypes.c_void_p()
        self.call("session_create", options, model.encode(), ctypes.byref(session))
        self.c.protrain_session_destroy(session)


def seconds(work, *arguments):
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    library, model = Library(sys.argv[1]), sys.argv[2]
    options, paths = library.options(sys.argv[3:]), [model, model + ".data"]
    library.open(options, model)
    rows = []
    for cold in (True, False):
        for _ in range(ROUNDS):
            times = []
            for work in ((read, paths), (library.open, options, model)):
                if cold:
                    forget(paths)
                times.append(seconds(*work))
            rows.append({"cold": cold, "read_seconds": times[0], "open_seconds": times[1], "ratio": times[1] / times[0]})
            print(f"{'disk' if cold else 'page cache'}: read {times[0]:.2f} s, opened {times[1]:.2f} s, "
                  f"ratio {rows[-1]['ratio']:.2f}", flush=True)
    support.save("opening", {"model": os.path.basename(model), "bytes": sum(map(os.path.getsize, paths)),
                             "options": sys.argv[3:], "rows": rows})


if __name__ == "__main__":
    main()
