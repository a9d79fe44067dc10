"""Kills a training run at random instants and resumes it, each time under another budget. The steps must have the bits
and the order of a run that never stopped, and so must the last checkpoint. The run takes the windows of more than one
epoch.

killed.py COMMAND FIXTURES: PROTRAIN_KILLS says how many kills, 4 by default."""

import filecmp
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS, BATCH, WINDOWS = 40, 4, 100
assert STEPS * BATCH > WINDOWS  # an epoch ends within the run
BUDGETS = [[], ["--memory", "6MiB", "--offload-dir", "."], ["--device-memory", "9MiB", "--host-memory", "12MiB"],
           ["--memory", "8MiB", "--offload-dir", "."]]


def words(command, model, folder, *more):
    return [command, "train", model, "--tokens", "tokens.bin", "--batch", str(BATCH), "--sequence", "32", "--labels",
            "same", "--shuffle", "5", "--seed", "3", "--clip-norm", "1", "--warmup-steps", "10",
            "--save", folder, *more]


def bits_by_step(path):
    """Loss and norm of each step."""
    steps = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # the kill cut the line
        bits = line["loss_bits"], line["grad_norm_bits"]
        assert steps.setdefault(line["step"], bits) is bits, f"step {line['step']} has two lines"
    return steps


def main():
    command, fixtures, kills = sys.argv[1], pathlib.Path(sys.argv[2]), int(os.environ.get("PROTRAIN_KILLS", "4"))
    model, source = str(fixtures / "gpt2-dynamic-opset18.onnx"), random.Random(8)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text = pathlib.Path("/usr/share/common-licenses/GPL-3").read_bytes()[:32 * WINDOWS]
        pathlib.Path("tokens.bin").write_bytes(bytes(byte for letter in text for byte in (letter, 0)))
        began = time.monotonic()
        subprocess.run(words(command, model, "whole", "--steps", str(STEPS), "--save-every", "1", "--keep", "2",
                             "--metrics", "whole.jsonl"), check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        whole = bits_by_step(pathlib.Path("whole.jsonl"))
        metrics, folders = pathlib.Path("killed.jsonl"), pathlib.Path("killed")
        killed = resumed = 0
        while killed < kills:
            steps = [path for path in folders.glob("step-*")] if folders.exists() else []
            done = max((int(path.name[5:]) for path in steps), default=0)
            bits = bits_by_step(metrics)  # compared each time, as a resumed run replaces lines
            assert all(whole[step] == bits[step] for step in bits), "the steps have other bits"
            if done > STEPS - 10:  # begins again, so that every kill hits a run
                subprocess.run(["rm", "-r", "killed", "killed.jsonl"], check=True)
                done = 0
            resume = ["--resume", "killed"] if done else []
            run = subprocess.Popen(words(command, model, "killed", "--steps", str(STEPS - done), "--save-every", "1",
                                         "--keep", "2", "--metrics", "killed.jsonl", *resume, *source.choice(BUDGETS)),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                _, errors = run.communicate(timeout=source.uniform(0.05, seconds))
                assert run.returncode == 0, errors
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.communicate()
                killed += 1
                resumed += bool(resume)
        done = max((int(path.name[5:]) for path in folders.glob("step-*")), default=0) if folders.exists() else 0
        if done < STEPS:
            subprocess.run(words(command, model, "killed", "--steps", str(STEPS - done), "--metrics", "killed.jsonl",
                                 *(["--resume", "killed"] if done else [])), check=True, stdout=subprocess.DEVNULL)
        assert bits_by_step(metrics) == whole, "the steps have other bits"
        for file in ("weights.safetensors", "optimizer.safetensors"):
            last = f"step-{STEPS:010d}"
            assert filecmp.cmp(f"whole/{last}/{file}", f"killed/{last}/{file}", shallow=False), f"{file} differs"
        print(f"{killed} kills, {resumed} of them after a resume")


main()
