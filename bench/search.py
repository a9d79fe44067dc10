#!/usr/bin/env python3
"""How far from the best of its whole space is the plan that the search chooses?

    bench/search.py BENCH_SEARCH MODELS

BENCH_SEARCH is the program bench_search (-DPROTRAIN_BENCH=ON), MODELS a folder with the models named below. Lays out
and simulates every point of the first two spaces, which takes half an hour each. The last space is larger; of it the
points that `bench_search grid` finds are laid out. Prints one line per budget. Exits with 1 if a plan was more than 1 %
off. Results: bench/results/search.json"""
import json
import os
import sys

import support

COMMON = ["dim=batch=8", "dim=sequence=512", "clip_norm=1", "precision=bf16"]
ROWS = [("gpt2-124m", "rtx3090", "all", ["1100MiB", "1300MiB", "1500MiB", "2GiB"]),
        ("llama-134m", "rtx3090", "all", ["900MiB", "1100MiB", "1300MiB", "2GiB"]),
        ("gpt2-350m", "h200", "grid", ["1536MiB", "2GiB", "3GiB", "5GiB"])]


def main():
    bench_search, models = sys.argv[1:3]
    found = []
    for name, hardware, space, budgets in ROWS:
        words = [bench_search, os.path.join(models, name + ".onnx"), hardware]
        done = support.run(words + (["grid"] if space == "grid" else []) + budgets + COMMON)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        for line in done.stdout.splitlines():
            row = dict(json.loads(line), model=name, space=space)
            if "ratio" not in row:
                raise SystemExit(f"{name} on {hardware}: nothing fits {support.size(row['budget'])}")
            found.append(row)
            print(f"{name} on {hardware} with {support.size(row['budget'])}: {row['points']} points, {row['fitting']} fit, "
                  f"{row['laid_out']} laid out by the search; {(row['ratio'] - 1):.2%} over the best", flush=True)
        support.save("search", {"options": COMMON, "budgets": found})
    return 1 if any(row["ratio"] > 1.01 for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
