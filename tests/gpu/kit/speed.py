"""Times a model's training step on the GPU, in libprotrain ("ours") or in PyTorch ("peer").

    speed.py ours MODEL:BATCH [--steps N] [--show] [-- OPTION ...]
    speed.py peer MODEL:BATCH:MODE           (MODE: one of bench/peers/pytorch.py)

MODEL is one of models/, with random weights and sequences of 1024 tokens, or one of tests/fixtures, with sequences of
16 tokens. OPTIONs go to `protrain train`; --show prints the command instead of running it. The time of a step is the
median of all steps after the first three. The rate counts 6 operations per token for each weight of a product, and
those of attention under its causal mask. Recomputed operations do not count."""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "bench"))
import support  # noqa: E402

SCRATCH, BUILD = os.environ["PROTRAIN_KIT_SCRATCH"], os.environ["PROTRAIN_KIT_BUILD"]
# The number of weights in products, the number of layers, the width.
SIZES = {"gpt2-1.5b": (1557.6e6, 48, 1600), "llama-1.1b": (1034.5e6, 22, 2048), "llama-3b": (2917e6, 28, 3072),
         "mistral-7b": (7110e6, 32, 4096), "llama-2-13b": (12852e6, 40, 5120)}


def rate_text(model, batch, sequence, seconds):
    tokens = batch * sequence
    text = f"{seconds * 1e3:.1f} ms a step, {tokens / seconds:.0f} tokens/s"
    if model not in SIZES:
        return text
    weights, layers, width = SIZES[model]
    rate = (6 * weights + 6 * layers * width * sequence) * tokens / seconds
    return f"{text}, {rate / 1e12:.0f} TFLOP/s"


def located(model):
    """Returns (the model's file with weights, the length of a sequence, the number of token ids)."""
    fixture = os.path.join(HERE, "tests", "fixtures", model + ".onnx")
    if os.path.exists(fixture):
        return fixture, 16, 100
    bare = os.path.join(HERE, "models", model + ".onnx")
    if not os.path.exists(bare):
        print(f"skipped: the kit has no {model}")
        raise SystemExit(0)
    folder = os.path.join(SCRATCH, model)
    path = os.path.join(folder, model + ".onnx")
    if not os.path.exists(path):
        subprocess.run([sys.executable, os.path.join(HERE, "weights.py"), bare, folder], check=True, stdout=sys.stderr)
    return path, 1024, 30000


def ours(arguments):
    model, batch = arguments.job.split(":")
    path, sequence, below = located(model)
    tokens = os.path.join(SCRATCH, f"tokens-{below}.bin")
    if not os.path.exists(tokens):
        support.write_tokens(tokens, 1 << 18, below)
    name = "-".join([model, f"b{batch}"] + [os.path.basename(word).strip("-") for word in arguments.options])
    metrics, report = os.path.join(SCRATCH, name + ".jsonl"), os.path.join(SCRATCH, name + ".json")
    words = [os.path.join(BUILD, "tools", "protrain"), "train", path, "--device", "cuda:0", "--precision", "bf16", "--steps",
             str(arguments.steps), "--tokens", tokens, "--labels", "same", "--batch", batch, "--sequence", str(sequence),
             "--learning-rate", "1e-5", *arguments.options]
    if arguments.show:
        print(shlex.join(words))
        return 0
    done = subprocess.run([*words, "--metrics", metrics, "--report", report])
    if done.returncode != 0:
        return 1
    rows = [json.loads(line) for line in open(metrics)]
    report = json.load(open(report))
    seconds = statistics.median([row["seconds"] for row in rows[3:] or rows[1:]])
    print(f"{model} batch {batch}: {rate_text(model, int(batch), sequence, seconds)}; first {rows[0]['seconds']:.2f} s; "
          f"replayed {report['replayed']} {report['not_recorded']}")
    print(f"  arena {support.size(rows[-1]['device_peak_bytes'])}, host {support.size(rows[-1]['host_peak_bytes'])}, "
          + ", ".join(f"{key} {value}" for key, value in report["memory"].items()))
    measured = report["measured"]
    for group in ("busy_seconds", "stall_seconds"):
        print(f"  {group}:", ", ".join(f"{key} {value * 1e3:.1f} ms" for key, value in measured[group].items() if value > 0))
    if "predicted" in report:
        print(f"  predicted {report['predicted']['seconds'] * 1e3:.1f} ms")
    by_time = sorted(report["operators"].items(), key=lambda item: -item[1]["seconds"])
    for operator, cost in by_time[:16]:
        print(f"  {cost['seconds'] * 1e3:8.2f} ms {cost['launches']:5d} x {operator}")
    with open(os.path.join(support.results_folder(), name + ".json"), "w") as file:
        del report["timeline"]
        json.dump(dict(report, steps=rows), file)
    return 0


def peer(arguments):
    model, batch, mode = arguments.job.split(":")
    words = [sys.executable, os.path.join(HERE, "bench", "peers", "pytorch.py"), "step", model, batch, "1024", mode, "16", "cuda"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return 1
    told = json.loads(support.last_line(done.stdout))
    seconds = statistics.median(told["seconds"][5:])
    print(f"PyTorch {told['torch']} {mode} {model} batch {batch}: {rate_text(model, int(batch), 1024, seconds)}; "
          f"first {told['seconds'][0]:.1f} s, peak {support.size(told['peak_bytes'])}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("who", choices=("ours", "peer"))
    parser.add_argument("job")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--show", action="store_true")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:cut])
    arguments.options = words[cut + 1:]
    return ours(arguments) if arguments.who == "ours" else peer(arguments)


if __name__ == "__main__":
    sys.exit(main())
