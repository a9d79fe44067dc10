#!/usr/bin/env python3
"""Is a session without a budget ever killed? GPT-2 in memory control groups of several sizes, with and without a disk.

    bench/default.py PROTRAIN MODEL.onnx [--batch 4] [--sequence 128] [--steps 2] [--directory /var/tmp] [GIB ...]

MODEL.onnx has its weights beside it. Needs root and control groups of the memory controller, version 1 or 2; the groups
get no swap. Each run starts without a profile: it measures kernels and disk inside the group, and the weights are not
in the page cache. A run must train, or be refused with a figure. If a signal ends it, that is a failure, and the script
exits with 1. Prints the plan, the planned bytes, the largest resident size, the group's peak (with page cache), and
seconds a step. Results: bench/results/default.json"""
import argparse
import json
import os
import signal
import sys
import tempfile
import time

import support

ROOTS = (("/sys/fs/cgroup/memory", {"limit": "memory.limit_in_bytes", "swap": "memory.memsw.limit_in_bytes",
                                    "peak": "memory.max_usage_in_bytes"}),
         ("/sys/fs/cgroup", {"limit": "memory.max", "swap": "memory.swap.max", "peak": "memory.peak"}))
INTEGERS = ("n_chunk", "n_persist", "n_buffer", "n_host", "n_block", "n_swap", "n_checkpoint", "n_selective")


class Group:
    """A control group of `limit` bytes of memory, without swap."""

    def __init__(self, limit):
        for root, self.files in ROOTS:
            self.path = os.path.join(root, f"protrain-bench-{os.getpid()}")
            try:
                os.mkdir(self.path)
            except OSError:
                continue
            if os.path.exists(os.path.join(self.path, self.files["limit"])):
                break
            os.rmdir(self.path)
        else:
            raise SystemExit("no control group of the memory controller can be made here")
        self.write("limit", limit)
        swap = os.path.join(self.path, self.files["swap"])
        if os.path.exists(swap):
            self.write("swap", limit if "memsw" in swap else 0)
        elif len(open("/proc/swaps").readlines()) > 1:
            raise SystemExit("there is swap, and the group cannot be denied it")

    def write(self, key, value):
        with open(os.path.join(self.path, self.files[key]), "w") as file:
            file.write(str(value))

    def peak(self):
        path = os.path.join(self.path, self.files["peak"])
        return int(open(path).read()) if os.path.exists(path) else None

    def run(self, words, output):
        """Returns the exit status, negative for a signal, and the largest resident size."""
        members = os.path.join(self.path, "cgroup.procs")
        child = os.fork()
        if child == 0:
            try:
                with open(members, "w") as file:
                    file.write("0")
                for number, path in ((1, output), (2, output + ".err")):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
                os.execvp(words[0], words)
            finally:
                os._exit(98)
        _, status, usage = os.wait4(child, 0)
        return os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(50):  # the last process may still be leaving the group
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


def forget(model):
    """Drops the weights from the page cache, so the group that reads them is charged for them."""
    for path in (model, model + ".data"):
        if os.path.exists(path):
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def train(args, folder, gib, disk):
    options = ["--profile-dir", os.path.join(folder, "profile")] + (["--offload-dir", args.directory] if disk else [])
    dims = ["--dim", f"batch={args.batch}", "--dim", f"sequence={args.sequence}"]
    metrics, output = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "output")
    row = {"group_gib": gib, "disk": disk}
    words = [args.protrain, "train", args.model, "--steps", str(args.steps), "--metrics", metrics, "--tokens",
             os.path.join(folder, "tokens.bin"), "--batch", str(args.batch), "--sequence", str(args.sequence)]
    forget(args.model)
    with Group(gib << 30) as group:
        start = time.monotonic()
        status, resident = group.run(words + options, output)
        row.update(exit=status, seconds=time.monotonic() - start, resident_peak_bytes=resident,
                   group_peak_bytes=group.peak())
    text = open(output + ".err").read()
    if status == 0:
        lines = [json.loads(line) for line in open(metrics)]
        row.update(outcome="trains", step_seconds=[line["seconds"] for line in lines],
                   losses=[line["loss"] for line in lines],
                   device_peak_bytes=lines[-1]["device_peak_bytes"], host_peak_bytes=lines[-1]["host_peak_bytes"])
    elif status == 1 and (found := support.REFUSAL.search(text)):
        row.update(outcome="refused", smallest=int(found[1]), key=found[2], budget=int(found[3]))
    else:
        row.update(outcome="FAILED", text=support.last_line(text))
        if status < 0:
            row["text"] = f"signal {signal.Signals(-status).name}; {row['text']}"
    with Group(gib << 30) as group:
        status, _ = group.run([args.protrain, "plan", args.model, "--json"] + dims + options, output)
    text = open(output).read()
    planned = json.loads(text) if text else {}
    row["plan"] = {key: planned[key] for key in INTEGERS if key in planned}
    row.update(budget_bytes=planned.get("budget", {}).get("memory"), predicted_seconds=planned.get("step_seconds"),
               planned_device_bytes=planned.get("device_peak_bytes"), planned_disk_bytes=planned.get("disk_bytes"))
    return row


def tell(row):
    head = f"{row['group_gib']:3} GiB {'disk' if row['disk'] else '    '} {row['outcome']:7} exit {row['exit']:3}"
    print(f"{head}  resident {support.size(row['resident_peak_bytes'])}, group "
          f"{support.size(row['group_peak_bytes'] or 0)}, budget {support.size(row['budget_bytes'] or 0)}, all "
          f"{row['seconds']:.0f} s")
    if row["outcome"] == "trains":
        planned = row["device_peak_bytes"] + row["host_peak_bytes"]
        print(f"         planned {support.size(planned)}, beside it "
              f"{support.size(row['resident_peak_bytes'] - planned)}; steps "
              f"{', '.join(f'{s:.2f}' for s in row['step_seconds'])} s, predicted "
              f"{row['predicted_seconds'] or 0:.2f} s")
    elif row["outcome"] == "refused":
        print(f"         smallest {row['key']}={row['smallest']} ({support.size(row['smallest'])})")
    else:
        print(f"         {row['text']}")
    print(f"         {', '.join(f'{k} {v}' for k, v in row['plan'].items())}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protrain")
    parser.add_argument("model")
    parser.add_argument("gib", nargs="*", type=int, default=[1, 2, 4, 16])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--directory", default="/var/tmp")
    args = parser.parse_args()
    rows, count = [], args.steps * args.batch * args.sequence
    for gib in args.gib:
        for disk in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                support.write_tokens(os.path.join(folder, "tokens.bin"), count, 50000)
                rows.append(train(args, folder, gib, disk))
            tell(rows[-1])
    failed = sum(row["outcome"] == "FAILED" for row in rows)
    print(f"{len(rows)} runs, {failed} failed")
    support.save("default", {"model": os.path.basename(args.model), "batch": args.batch, "sequence": args.sequence,
                             "failed": failed, "rows": rows})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
