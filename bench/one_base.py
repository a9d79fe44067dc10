#!/usr/bin/env python3
"""Measures what sessions of one process take that train adapters of one base.

    bench/one_base.py LIBPROTRAIN.so MODEL.onnx [--sessions 16] [--form nf4] [--rank 16] [--lora '*_proj.weight']
                      [--sequence 64] [--name one-base] [-- OPTION=VALUE ...]

Creates the sessions one after the other, and each takes a step on random tokens. After each step the process's resident
memory is read. `shared_bytes` is what the session's log says it has in common with the others. The inputs of the model
are `input_ids` and `labels`. Results: bench/results/NAME.json"""
import argparse
import ctypes
import json
import os
import random
import sys

import support

INT64 = 8
LOG = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.protrain_error_text.restype = ctypes.c_char_p

    def call(self, function, *arguments):
        of = getattr(self.c, function)
        of.restype = ctypes.c_void_p
        if error := of(*arguments):
            raise SystemExit(self.c.protrain_error_text(ctypes.c_void_p(error)).decode())


def resident():
    rows = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(rows["VmRSS"].split()[0]) << 10


def session_of(library, args, lines):
    options, session = ctypes.c_void_p(), ctypes.c_void_p()
    library.call("protrain_options_create", ctypes.byref(options))
    pairs = ["dim=batch=1", f"dim=sequence={args.sequence}", f"lora={args.lora},rank={args.rank}", "precision=bf16",
             f"base_precision={args.form}", *args.options]
    for pair in pairs:
        key, value = pair.split("=", 1)
        library.call("protrain_options_set", options, key.encode(), value.encode())
    log = LOG(lambda line, _: lines.append(json.loads(line)))
    library.call("protrain_session_create", options, args.onnx.encode(), ctypes.byref(session))
    library.call("protrain_session_set_log", session, log, None)
    library.call("protrain_session_set_log", session, LOG(), None)
    return session


def step(library, session, args, number):
    source = random.Random(number)
    tokens = (ctypes.c_int64 * args.sequence)(*(source.randrange(500) for _ in range(args.sequence)))
    dims, loss = (ctypes.c_int64 * 2)(1, args.sequence), ctypes.c_float()
    for name in (b"input_ids", b"labels"):
        library.call("protrain_session_set_input", session, name, INT64, dims, ctypes.c_size_t(2), tokens,
                     ctypes.c_size_t(ctypes.sizeof(tokens)))
    library.call("protrain_step", session, ctypes.byref(loss))
    return loss.value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("onnx")
    parser.add_argument("--sessions", type=int, default=16)
    parser.add_argument("--form", default="nf4")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lora", default="*_proj.weight")
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--name", default="one-base")
    options = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:options])
    args.options = sys.argv[options + 1:]
    library, sessions, rows = Library(args.library), [], []
    for number in range(args.sessions):
        lines = []
        sessions.append(session_of(library, args, lines))
        created = next(line for line in lines if line["event"] == "created")
        loss = step(library, sessions[-1], args, number)
        rows.append({"planned_bytes": created["device_peak_bytes"], "shared_bytes": created["shared_bytes"], "loss": loss,
                     "resident_bytes": resident()})
        print(number, rows[-1], flush=True)
    support.save(args.name, {"model": os.path.basename(args.onnx), "form": args.form, "rank": args.rank, "lora": args.lora,
                             "sequence": args.sequence, "options": args.options, "sessions": rows})


if __name__ == "__main__":
    main()
