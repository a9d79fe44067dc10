#!/usr/bin/env python3
"""How many more tokens of documents does a second of training take if documents are packed into windows?

    bench/packing.py PROTRAIN MODEL.onnx FOLDER [--labels same|next] [--sequence 1024] [--batch 1] [--steps 8]
                     [--rounds 2] [-- OPTION ...]

The documents are the texts under FOLDER, compressed ones too, in tokens of one word or one other character. Those that
fit into a window are packed, or each is alone in a window that is filled up. A step has the same shapes either way.
Both ways train in turn; of each round the median step counts. Tokens per second are the tokens of documents in a window
on average, over all windows, by the seconds of a step. Also prints how full windows are if longer documents, too, are
cut into windows. Results: bench/results/packing.json"""
import argparse
import gzip
import itertools
import json
import os
import pathlib
import re
import statistics
import struct
import sys
import tempfile

import support

SEPARATOR, VOCABULARY = 0, 50000
WORDS = re.compile(r"\w+|[^\w\s]|\n")


def documents(folder):
    """Token ids of each text, which ends in the separator. Links to the same file count once."""
    ids = {}
    for path in sorted({path.resolve() for path in pathlib.Path(folder).rglob("*") if path.is_file()}):
        try:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        except (OSError, UnicodeDecodeError, EOFError, gzip.BadGzipFile):
            continue
        tokens = [ids.setdefault(word, 1 + len(ids) % (VOCABULARY - 1)) for word in WORDS.findall(text)]
        if tokens:
            yield tokens + [SEPARATOR]


def write(path, tokens):
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{len(tokens)}H", *tokens))


def alone(args, chosen, folder):
    """Arguments that feed documents in windows of their own."""
    texts = list(itertools.islice(itertools.cycle(chosen), args.steps * args.batch))
    ahead = 1 if args.labels == "next" else 0
    filled = lambda tokens, value: tokens + [value] * (args.sequence - len(tokens))
    ids, labels = [filled(t, SEPARATOR) for t in texts], [filled(t[ahead:], -100) for t in texts]
    flags = []
    for name, rows in (("input_ids", ids), ("labels", labels)):
        path = os.path.join(folder, name + ".npy")
        support.write_array(path, (args.steps, args.batch, args.sequence), list(itertools.chain.from_iterable(rows)))
        flags += ["--input", f"{name}={path}"]
    return flags


def trained(args, flags, folder):
    """The median seconds of a step, without the first two, and what the command said about packing."""
    metrics = os.path.join(folder, "metrics.jsonl")
    done = support.run([args.protrain, "train", args.onnx, "--steps", str(args.steps), "--metrics", metrics, *flags,
                        *args.options])
    if done.returncode != 0:
        raise SystemExit(support.last_line(done.stderr))
    said = re.search(r"(\d+) documents in (\d+) windows", done.stdout)
    return statistics.median([json.loads(line)["seconds"] for line in open(metrics)][2:]), said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("protrain", "onnx", "folder"):
        parser.add_argument(name)
    parser.add_argument("--labels", default="same", choices=("same", "next"))
    for name, default in (("sequence", 1024), ("batch", 1), ("steps", 8), ("rounds", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.options = sys.argv[end + 1:]
    everything = list(documents(args.folder))
    fitting = [tokens for tokens in everything if len(tokens) <= args.sequence]
    pieces = [length for tokens in everything
              for length in [args.sequence] * (len(tokens) // args.sequence) + [len(tokens) % args.sequence] if length > 1]
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        write(tokens, list(itertools.chain.from_iterable(fitting)))
        packed = ["--tokens", tokens, "--separator", str(SEPARATOR), "--labels", args.labels, "--batch", str(args.batch),
                  "--sequence", str(args.sequence)]
        single = alone(args, fitting, folder)
        count = sum(map(len, fitting))
        rounds = []
        for _ in range(args.rounds):
            apart, _ = trained(args, single, folder)
            together, said = trained(args, packed, folder)
            speed = {"alone": args.batch * count / len(fitting) / apart,
                     "packed": args.batch * count / int(said.group(2)) / together}
            rounds.append({"seconds_alone": apart, "seconds_packed": together, "tokens_per_second": speed,
                           "ratio": speed["packed"] / speed["alone"]})
            print(rounds[-1])
    lengths = sorted(map(len, everything))
    support.save("packing", {
        "model": os.path.basename(args.onnx), "folder": args.folder, "sequence": args.sequence, "batch": args.batch,
        "options": args.options,
        "documents": {"count": len(lengths), "tokens": sum(lengths),
                      "percentiles_10_25_50_75_90": [lengths[len(lengths) * p // 100] for p in (10, 25, 50, 75, 90)]},
        "fitting": {"count": len(fitting), "tokens": count, "windows": int(said.group(2)),
                    "filled_alone": count / len(fitting) / args.sequence,
                    "filled_packed": count / int(said.group(2)) / args.sequence},
        "all_cut_into_windows": {"filled_without_packing": sum(pieces) / len(pieces) / args.sequence},
        "rounds": rounds, "ratio": statistics.median(round_["ratio"] for round_ in rounds)})


main()
