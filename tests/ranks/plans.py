#!/usr/bin/env python3
"""Trains under random plans as one to four processes over a real transport, and compares with one process.

    plans.py BUILD --launcher openmpi|mpich|gloo [--count 30] [--seed 1]

For each model, precision and number of ranks it draws --count plans, with chunks in memory, on the host's side and on
disk, sharded and whole, and blocks that swap and compute again. Every second plan clips the gradients' norm. Losses, norms and the exported weights must be those of one process without a plan that takes all micro-batches
itself, bit for bit. The figures are added to bench/results/rank-plans.json. Exits with 1 if a bit differs.
"""
import argparse
import collections
import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import support  # noqa: E402

FIXTURES = os.path.join(ROOT, "tests", "fixtures")
MODELS = ("gpt2-dynamic-opset18", "opt-dynamic-opset18", "llama-dynamic-opset23", "mistral-dynamic-opset23",
          "dropout-gpt", "retention-dynamic-opset18")
PRECISIONS = ("fp32", "bf16")
MICRO_BATCHES = 12  # of a step: a multiple of every number of ranks
RANKS = (1, 2, 3, 4)
LIMIT = 120  # seconds of a run


def draw_plan(dice, ranks):
    chunks = dice.randint(0, 10)
    plan = {"chunk_bytes": dice.choice((16384, 65536, 262144)), "n_persist": chunks, "n_host": dice.randint(0, 6),
            "n_buffer": dice.randint(0, 4), "n_swap": dice.randint(0, 2), "n_checkpoint": dice.randint(0, 3),
            "n_selective": dice.randint(0, 2), "slack": dice.randint(1, 4)}
    if ranks > 1:
        plan |= {"ranks": ranks, "n_whole": dice.randint(0, chunks)}
    return plan


class Trainer:
    def __init__(self, build, launcher, folder):
        self.command, self.launcher, self.folder = os.path.join(build, "tools", "protrain"), launcher, folder
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")

    def path(self, name):
        return os.path.join(self.folder, name)

    def words(self, case, ranks):
        model, precision, clips = case
        words = [self.command, "train", os.path.join(FIXTURES, model + ".onnx"), "--threads", "1", "--steps", "2",
                 "--input", f"input_ids={FIXTURES}/input_ids.npy", "--input", f"labels={FIXTURES}/labels.npy",
                 "--precision", precision, "--accumulation", str(MICRO_BATCHES // ranks), "--offload-dir", self.folder,
                 "--metrics", self.path("metrics"), "--export", self.path("trained.onnx")]
        return words + (["--clip-norm", "0.5"] if clips else [])

    def result(self):
        rows = [json.loads(line) for line in open(self.path("metrics"))]
        weights = hashlib.sha256(open(self.path("trained.onnx"), "rb").read()).hexdigest()
        for name in ("metrics", "trained.onnx"):
            os.remove(self.path(name))
        return [(row["loss_bits"], row["grad_norm_bits"]) for row in rows], weights

    def alone(self, case):
        done = subprocess.run(self.words(case, 1), capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return self.result()

    # Returns the results, or what the ranks said instead.
    def together(self, case, ranks, plan):
        with open(self.path("plan.json"), "w") as file:
            json.dump(plan, file)
        words = self.words(case, ranks) + ["--plan", self.path("plan.json"), "--comm-timeout", "30"]
        if self.launcher == "gloo":
            place = tempfile.mkdtemp(dir=self.folder)
            meet = ["--ranks", str(ranks), "--rendezvous", place] if ranks > 1 else []
            commands = [words + (meet + ["--rank", str(rank)] if meet else []) for rank in range(ranks)]
        elif self.launcher == "openmpi":
            commands = [["mpirun.openmpi", "--oversubscribe", "-n", str(ranks), *words]]
        else:
            commands = [["mpirun.mpich", "-n", str(ranks), *words]]
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                    env=self.environment) for command in commands]
        said = [process.communicate(timeout=LIMIT)[1] for process in running]
        failed = [text for process, text in zip(running, said) if process.returncode != 0]
        return " ".join(failed).strip() if failed else self.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--launcher", choices=("openmpi", "mpich", "gloo"), required=True)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dice = random.Random(args.seed)
    expected, runs, wrong = {}, collections.Counter(), []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        trainer = Trainer(os.path.abspath(args.build), args.launcher, folder)
        for number in range(args.count):
            for model, precision, ranks in itertools.product(MODELS, PRECISIONS, RANKS):
                case, plan = (model, precision, number % 2 == 1), draw_plan(dice, ranks)
                if case not in expected:
                    expected[case] = trainer.alone(case)
                found = trainer.together(case, ranks, plan)
                runs[f"{precision}, {ranks} ranks"] += 1
                if found != expected[case]:
                    wrong.append({"case": case, "ranks": ranks, "plan": plan, "said": str(found)[:300]})
                    print("differs:", wrong[-1], flush=True)
            print(number + 1, "plans of", args.count, flush=True)
    path = os.path.join(support.results_folder(), "rank-plans.json")
    before = json.load(open(path)) if os.path.exists(path) else {}
    figures = {"seed": args.seed, "plans": dict(runs), "wrong": wrong}
    launchers = dict(before.get("launchers", {}), **{args.launcher: figures})
    support.save("rank-plans", {"models": MODELS, "micro_batches": MICRO_BATCHES, "launchers": launchers})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
