#!/usr/bin/env python3
"""Runs the checks that need a GPU, in parts of less than nine minutes each. Everything must be built beforehand.

    tests/gpu/check.py BUILD [--device cuda:0] [--quick] [--jobs N] [--plans N] [--gpt2 MODEL.onnx] [--peer PYTHON]
                       [PART ...]

BUILD is a build folder with the command, the plugin and test_conformance. PARTs (all, if none is named):
  conformance  every kernel against the reference, by test_conformance
  golden       the fixtures' losses: in fp32 within the tolerance of the CPU's test, in bf16 within 1 % at every step. On a
               GPU the steps must be replays of a recording, and the eighth of ten steps must be the last one timed
  invariance   loss and norm have the same bits under 50 random plans, for two models in fp32 and for one in bf16
  budget       a session fits into its budget while another process holds the rest of the GPU's memory
  sanitizer    a short run under compute-sanitizer, if there is one
  step         times steps of --gpt2, ours and PyTorch's in turn, on one GPU (--peer: a Python with torch, transformers)
--jobs: so many processes of conformance, golden, invariance and sanitizer share the device at a time. --quick makes
golden and invariance use one model instead of all. Without a GPU these two parts run with `--device cpu`, or with `--device
emulated`, which runs the plugin's kernels on the CPU if BUILD has the emulated plugin. Emulated kernels are slow, so
golden then takes one form of each family.
The script prints a line per check, and exits with 1 if a check failed. On a GPU it writes bench/results/gpu.json. There
the rows of a part replace those of an earlier run of the same commit on a machine of the same name."""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import support  # noqa: E402

GOLDEN = [f"{family}-{form}" for family in ("gpt2", "llama", "mistral", "opt")
          for form in ("dynamic-opset18", "dynamic-opset23", "static-opset18")]
PLANNED = ("gpt2-dynamic-opset18", "llama-dynamic-opset23")
OPTIMIZER = ["--learning-rate", "1e-3", "--beta2", "0.95", "--weight-decay", "0.1"]


class Checks:
    def __init__(self, arguments):
        self.arguments, self.rows, self.failed = arguments, [], 0
        self.protrain = os.path.join(arguments.build, "tools", "protrain")
        # Profiles that are measured beside other processes are noisy, so they are not kept among the user's own.
        self.cache = tempfile.TemporaryDirectory()
        self.device, self.environment = arguments.device, dict(os.environ, XDG_CACHE_HOME=self.cache.name)
        self.emulated = arguments.device == "emulated"
        if self.emulated:  # the library looks for plugins in its own folder
            folder = os.path.join(arguments.build, "tests", "cuda", "plugin", "emulated")
            self.device, self.environment["LD_LIBRARY_PATH"] = "cuda:0", folder

    def note(self, name, holds, **figures):
        self.rows.append(dict(check=name, holds=bool(holds), **figures))
        self.failed += not holds
        print(f"{'ok    ' if holds else 'FAILED'} {name} {figures if figures else ''}", flush=True)

    def each(self, function, jobs):
        """Calls the function for each job, --jobs at a time. Yields (job, its result) in the jobs' order."""
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            yield from zip(jobs, pool.map(function, jobs))

    def train(self, model, more, steps=10, before=()):
        """Trains. Returns the metrics, the report, and what the command printed if it failed; metrics are then None."""
        inputs = [word for name in ("input_ids", "labels") for word in ("--input", f"{name}={FIXTURES}/{name}.npy")]
        with tempfile.TemporaryDirectory() as folder:
            metrics, report = os.path.join(folder, "metrics.jsonl"), os.path.join(folder, "report.json")
            done = subprocess.run([*before, self.protrain, "train", os.path.join(FIXTURES, model + ".onnx"), "--device",
                                   self.device, "--steps", str(steps), "--metrics", metrics, "--report", report, *inputs,
                                   *OPTIMIZER, *more], capture_output=True, text=True, env=self.environment)
            if done.returncode != 0:
                return None, None, (done.stdout + done.stderr)[-500:]
            return [json.loads(line) for line in open(metrics)], json.load(open(report)), ""

    # The parts.

    def conformance(self):
        test = os.path.join(self.arguments.build, "tests", "test_conformance")

        def shard(number):
            environment = dict(self.environment, PROTRAIN_REQUIRED_DEVICE=self.device, GTEST_SHARD_INDEX=str(number),
                               GTEST_TOTAL_SHARDS=str(self.arguments.jobs))
            return subprocess.run([test, "--gtest_filter=*/cuda"], capture_output=True, text=True, env=environment)

        passed, wrong, said = 0, 0, ""
        for _, done in self.each(shard, range(self.arguments.jobs)):
            passed += done.stdout.count("[       OK ]")
            if done.returncode != 0:
                wrong += 1
                said += f"exit status {done.returncode}: {(done.stderr + done.stdout)[-1500:]}"
        self.note("conformance", passed > 0 and wrong == 0, passed=passed, said=said)

    def golden(self):
        models = GOLDEN[:1] if self.arguments.quick else GOLDEN[::3] if self.emulated else GOLDEN
        jobs = [(model, precision) for model in models for precision in ("fp32", "bf16")]
        trained = self.each(lambda job: self.train(job[0], ["--precision", job[1]]), jobs)
        for (model, precision), (rows, report, said) in trained:
            name = f"golden {model} {precision}"
            if rows is None:
                self.note(name, False, said=said)
                continue
            expected = json.load(open(os.path.join(FIXTURES, model.split("-")[0] + ".json")))["losses"]
            errors = [abs(row["loss"] / loss - 1) for row, loss in zip(rows, expected)]
            first, later = (2e-6, 5e-4) if precision == "fp32" else (1e-2, 1e-2)
            timed = report["timed_step"]
            steps = timed == len(rows) if self.device == "cpu" else report["replayed"] and timed == 8
            self.note(name, errors[0] <= first and max(errors) <= later and steps, first=errors[0], worst=max(errors),
                      replayed=report["replayed"], timed_step=timed, not_recorded=report["not_recorded"])

    def invariance(self):
        draw = random.Random(5)
        pairs = [(PLANNED[0], "fp32"), (PLANNED[1], "fp32"), (PLANNED[1], "bf16")]
        for model, precision in pairs[:1] if self.arguments.quick else pairs:
            plans = [self.random_plan(draw) for _ in range(self.arguments.plans)]
            self.invariant(f"invariance {model} {precision}", model, ["--precision", precision], plans)

    @staticmethod
    def random_plan(draw):
        return {"n_persist": draw.randrange(12), "n_buffer": draw.randrange(1, 4), "n_checkpoint": draw.randrange(3),
                "n_swap": draw.randrange(3), "n_selective": draw.randrange(3), "chunk_bytes": 16384,
                "n_host": draw.randrange(12), "update": draw.choice(("host", "device")), "slack": draw.randrange(4),
                "n_deferred": draw.choice((0, 0, 3, 8, "all"))}

    def invariant(self, name, model, form, plans):
        with tempfile.TemporaryDirectory() as folder:
            kept, said = self.bits(model, form)
            if kept is None:
                return self.note(name, False, said=said)

            def planned(number):
                path, disk = os.path.join(folder, f"plan-{number}.json"), os.path.join(folder, f"disk-{number}")
                json.dump(plans[number], open(path, "w"))
                os.mkdir(disk)
                memory = ["--device-memory", "1GiB", "--host-memory", "1GiB", "--offload-dir", disk]
                return self.bits(model, [*form, "--plan", path, *memory])

            wrong = 0
            for number, (found, said) in self.each(planned, range(len(plans))):
                if found != kept:
                    wrong += 1
                    print(f"{name}: other bits under {plans[number]} {said}")
            self.note(name, wrong == 0, plans=len(plans), wrong=wrong)

    def bits(self, model, more):
        """Returns the bits of losses and norms of three steps, or None and what the command printed."""
        rows, _, said = self.train(model, more, steps=3)
        return rows and [(row["loss_bits"], row["grad_norm_bits"]) for row in rows], said

    def budget(self):
        """Trains with the smallest budget, which a refusal names, while gpu_ballast holds the GPU's other memory."""
        ballast = os.path.join(self.arguments.build, "tests", "gpu_ballast")
        for model in PLANNED:
            _, _, said = self.train(model, ["--device-memory", "64KiB", "--host-memory", "1GiB"], steps=1)
            refusal = support.REFUSAL.search(said)
            if not refusal:
                self.note(f"budget {model}", False, said=said)
                continue
            smallest = int(refusal.group(1))
            holder = subprocess.Popen([ballast, self.arguments.device, str(smallest)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
            left = holder.stdout.readline().strip()
            rows, _, said = self.train(model, ["--device-memory", str(smallest), "--host-memory", "1GiB"])
            holder.communicate("\n")
            self.note(f"budget {model}", rows is not None and rows[-1]["device_peak_bytes"] <= smallest,
                      smallest=smallest, left_on_the_card=left, said=said)

    def sanitizer(self):
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(tool):
            print("skipped sanitizer: there is no compute-sanitizer")
            return

        def checked(job):
            check, precision = job
            return self.train(PLANNED[0], ["--precision", precision], steps=2,
                              before=[tool, "--tool", check, "--error-exitcode", "9"])

        jobs = [(check, precision) for check in ("memcheck", "racecheck", "initcheck") for precision in ("fp32", "bf16")]
        for (check, precision), (rows, _, said) in self.each(checked, jobs):
            self.note(f"sanitizer {check} {precision}", rows is not None, said=said)

    def step(self):
        if not self.arguments.gpt2 or not self.arguments.peer:
            print("skipped step: it needs --gpt2 and --peer")
            return
        for precision, mode in (("fp32", "fp32"), ("bf16", "autocast")):
            name = f"gpu-step-{precision}"
            done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "step.py"), self.protrain,
                                   self.arguments.peer, self.arguments.gpt2, "--batch", "8", "--sequence", "1024", "--modes",
                                   mode, "--device", self.arguments.device, "--name", name, "--rounds", "3", "--",
                                   "--precision", precision], capture_output=True, text=True)
            self.note(f"step {precision}", done.returncode == 0, said=(done.stdout + done.stderr)[-700:])


PARTS = ("conformance", "golden", "invariance", "budget", "sanitizer", "step")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--plans", type=int, default=50, help="of each model, for invariance")
    parser.add_argument("--gpt2")
    parser.add_argument("--peer")
    arguments = parser.parse_intermixed_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    checks, parts = Checks(arguments), {}
    for part in arguments.parts or PARTS:
        begin = time.monotonic()
        checks.rows = []
        getattr(checks, part)()
        parts[part] = {"seconds": round(time.monotonic() - begin, 1), "checks": checks.rows}
    if arguments.device.startswith("cuda"):
        card = said_by("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        commit = said_by("git", "-C", ROOT, "rev-parse", "--short", "HEAD") or "of the kit's build"
        support.save("gpu", {"device": arguments.device, "gpu": card, "commit": commit,
                             "parts": dict(earlier_parts(commit), **parts)})
    print(f"{checks.failed} failed" if checks.failed else "all hold")
    return 1 if checks.failed else 0


def said_by(*words):
    """What a program printed; "" if the machine lacks it or it failed."""
    return support.run(words).stdout.strip() if shutil.which(words[0]) else ""


def earlier_parts(commit):
    """The parts that an earlier run of the same commit saved on a machine of the same name."""
    try:
        earlier = json.load(open(os.path.join(support.results_folder(), "gpu.json")))
    except FileNotFoundError:
        return {}
    same = earlier["machine"] == support.machine() and earlier.get("commit") == commit
    return earlier["parts"] if same else {}


if __name__ == "__main__":
    sys.exit(main())
