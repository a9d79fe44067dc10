#!/usr/bin/env python3
"""Plans the models of the ProTrain paper (arXiv 2406.08334, MLSys 2026, tables 2, 3 and 5) for four devices, and writes
what a step is predicted to take beside the paper's tokens per second.
usage: ranks_on_paper.py PROTRAIN MODELS_DIR OUT.json [ROW ...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

# Row: machine, model, batches per device (the fastest one counts), the paper's tokens per second (None: table 2 says
# only that the model fits).
ROWS = {
    "3090/gpt2-10b": ("rtx3090", "gpt2-10b", (16, 32), 2493.0),
    "3090/gpt2-37b": ("rtx3090", "gpt2-37b", (8,), None),
    "a100/mistral-7b": ("a100-80gb", "mistral-7b", (32, 64), 11060.92),
    "a100/gpt2-10b": ("a100-80gb", "gpt2-10b", (32, 64), 8266.40),
    "a100/llama-2-13b": ("a100-80gb", "llama-2-13b", (32, 64), 6471.32),
    "a100/gpt2-20b": ("a100-80gb", "gpt2-20b", (32, 64), 5043.75),
    "a100/gpt2-30b": ("a100-80gb", "gpt2-30b", (32, 64), 3431.0),
    "a100/opt-30b": ("a100-80gb", "opt-30b", (32, 64), 3266.0),
    "a100/llama-34b": ("a100-80gb", "llama-34b", (32, 64), 2845.0),
    "a100/gpt2-40b": ("a100-80gb", "gpt2-40b", (16, 32), 2724.0),
    "a100/gpt2-87b": ("a100-80gb", "gpt2-87b", (8,), None),
}
# The paper's own plans (table 4). Its model has 48 blocks and 49 chunks, ours has 50 blocks, which chunks of this size
# cut into 52. 46 buffers hold all of its chunks that do not persist.
CHUNK_BYTES = 453107712
PAPER_PLANS = {
    "3090/gpt2-10b/table-4": {"n_persist": 3, "n_buffer": 46, "n_checkpoint": 50, "n_swap": 0, "chunk_bytes": CHUNK_BYTES},
    "a100/gpt2-10b/table-4": {"n_persist": 15, "n_buffer": 3, "n_checkpoint": 0, "n_swap": 0, "chunk_bytes": CHUNK_BYTES},
}
ROWS["3090/gpt2-10b/table-4"] = ("rtx3090", "gpt2-10b", (8,), 2493.0)
ROWS["a100/gpt2-10b/table-4"] = ("a100-80gb", "gpt2-10b", (8,), 8266.40)
RANKS, SEQUENCE = 4, 1024


def plan(protrain, models, machine, model, batch, given):
    command = [protrain, "plan", str(models / f"{model}.onnx"), "--hardware", machine, "--precision", "bf16",
               "--ranks", str(RANKS), "--dim", f"batch={batch}", "--dim", f"sequence={SEQUENCE}", "--json"]
    if given:
        command += ["--plan", given]
    start = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0 and not run.stdout.startswith("{"):
        return {"batch": batch, "error": run.stderr.strip()}
    found = json.loads(run.stdout)
    keys = ("feasible", "n_chunk", "n_persist", "n_buffer", "n_host", "n_device_update", "n_deferred", "n_block",
            "n_swap", "n_checkpoint", "n_selective", "step_seconds", "tokens_per_second", "device_peak_bytes",
            "host_peak_bytes")
    return {"batch": batch, **{key: found[key] for key in keys}, "seconds_of_planning": time.monotonic() - start}


def main():
    protrain, models, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    results = json.loads(out.read_text()) if out.exists() else {}
    for name in sys.argv[4:] or ROWS:
        machine, model, batches, paper = ROWS[name]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as given:
            json.dump(PAPER_PLANS.get(name), given)
            given.flush()
            plans = [plan(protrain, models, machine, model, batch, given.name if name in PAPER_PLANS else None)
                     for batch in batches]
        fitting = [p for p in plans if p.get("feasible") or name in PAPER_PLANS]
        best = max(fitting, key=lambda p: p["tokens_per_second"], default=None)
        results[name] = {"machine": machine, "ranks": RANKS, "sequence": SEQUENCE, "paper_tokens_per_second": paper,
                         "best": best, "plans": plans}
        if best and paper:
            results[name]["ratio"] = best["tokens_per_second"] / paper
        out.write_text(json.dumps(results, indent=1) + "\n")
        print(name, best and best["tokens_per_second"], results[name].get("ratio"), flush=True)


if __name__ == "__main__":
    main()
