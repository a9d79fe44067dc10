#!/usr/bin/env python3
"""Times the CPU's kernels and compares them with the processor's ceilings.

    bench/kernels.py BENCH_KERNELS [--repetitions 5] [OPTION ...]

BENCH_KERNELS is the program (-DPROTRAIN_BENCH=ON), OPTIONs are Google Benchmark's. Prints and keeps the median of the
repetitions. A kernel above the memory ceiling got its data from a cache. Results: bench/results/kernels.json"""
import argparse
import json
import subprocess

import support

FIGURES = ("real_time", "GFLOP/s", "GB/s", "of_ceiling")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--repetitions", type=int, default=5)
    args, options = parser.parse_known_args()
    done = subprocess.run([args.program, f"--benchmark_repetitions={args.repetitions}", "--benchmark_format=json",
                           *options], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    ceilings = {key: value for key, value in found["context"].items() if key.startswith("ceiling") or key == "device"}
    rows = {}
    for row in found["benchmarks"]:
        if args.repetitions == 1 or row.get("aggregate_name") == "median":
            name = row["run_name"].removesuffix("/real_time")
            rows[name] = {"milliseconds" if key == "real_time" else key: row[key] for key in FIGURES if key in row}
    print("   ".join(f"{key} {value}" for key, value in ceilings.items()))
    for name, row in rows.items():
        print(f"{name:42}" + "".join(f"{value:10.3f} {key}" for key, value in row.items()))
    support.save("kernels", {"ceilings": ceilings, "kernels": rows})


if __name__ == "__main__":
    main()
