#!/usr/bin/env python3
"""How does a step's time grow with the batch, and with the sequence?

    bench/scaling.py PROTRAIN MODEL.onnx [--labels same] [--batches 1,2,4,8] [--sequences 256,512,1024,2048,4096]
                     [--rounds 3] [-- OPTION ...]

Runs each batch at the first of the sequences, and each sequence at batch 1. Every size runs once in a round, in a
process of its own, for three steps, of which the first does not count. The report of the last step splits its time into
attention (forward and backward) and the rest. Both are given per token, so a cost that grows linearly stays the same.
The optimizer is left out, because its cost does not depend on the size. Results: bench/results/scaling.json"""
import argparse
import html.parser
import json
import os
import statistics
import sys
import tempfile

import support

UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6}


class Cells(html.parser.HTMLParser):
    """The text of each table cell of a page."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.inside = [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.inside = tag == "td"

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts.append(data.strip())


def seconds_by_operator(page):
    cells = Cells(page[page.index("Time by operator"):]).texts
    rows = zip(cells[0::3], cells[2::3])
    return {name: float(time.split()[0]) * UNITS[time.split()[1]] for name, time in rows}


def measure(args, batch, sequence, tokens, folder):
    metrics, report = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "report.html")
    words = [args.protrain, "train", args.onnx, "--steps", "3", "--tokens", tokens, "--labels", args.labels, "--batch",
             str(batch), "--sequence", str(sequence), "--metrics", metrics, "--report", report, *args.options]
    done, peak = support.run_measured(words)
    if done != 0:
        raise SystemExit(f"protrain left with {done}")
    rows = [json.loads(line) for line in open(metrics)]
    times = seconds_by_operator(open(report).read())
    attention = sum(time for name, time in times.items() if "Attention" in name)
    rest = sum(times.values()) - attention - times.get("update", 0)
    count = batch * sequence
    return {"batch": batch, "sequence": sequence, "seconds": min(row["seconds"] for row in rows[1:]), "peak_bytes": peak,
            "attention_us_per_token": attention / count * 1e6, "rest_us_per_token": rest / count * 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("onnx")
    parser.add_argument("--labels", default="same", choices=("same", "next"))
    parser.add_argument("--batches", default="1,2,4,8")
    parser.add_argument("--sequences", default="256,512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=30000, help="random tokens are below it")
    alone = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:alone])
    args.options = sys.argv[alone + 1:]
    batches, sequences = ([int(word) for word in words.split(",")] for words in (args.batches, args.sequences))
    sizes = [(batch, sequences[0]) for batch in batches]
    sizes += [size for sequence in sequences if (size := (1, sequence)) not in sizes]
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens.bin")
        support.write_tokens(tokens, 4 * max(batch * sequence for batch, sequence in sizes), args.vocabulary)
        for _ in range(args.rounds):
            rounds.append([measure(args, *size, tokens, folder) for size in sizes])
    for rows in zip(*rounds):
        of = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        print(f"batch {of['batch']:2} sequence {of['sequence']:5}: {of['seconds']:7.3f} s a step; a token takes "
              f"{of['rest_us_per_token']:6.0f} us, and {of['attention_us_per_token']:6.0f} us of attention; "
              f"{support.size(of['peak_bytes'])}", flush=True)
    support.save("scaling", {"options": args.options, "rounds": rounds})


if __name__ == "__main__":
    main()
