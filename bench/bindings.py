#!/usr/bin/env python3
"""Measures how much more a call through each binding costs than the same call in C.

    bench/bindings.py PREFIX      PREFIX: where libprotrain is installed; needs Go, a JDK and cargo

Prints one line per language: nanoseconds more than in C, by the fastest of many rounds. Exits with 1 if a call costs at
least 1 us more than in C. Results: bench/results/bindings.json"""
import json
import os
import subprocess
import sys
import tempfile

import support

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..", "tests", "fixtures", "gpt2-dynamic-opset18.onnx")


def main():
    library = os.path.join(os.path.abspath(sys.argv[1]), "lib")
    with tempfile.TemporaryDirectory() as work:
        environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(library, "pkgconfig"), LD_LIBRARY_PATH=library,
                           CARGO_TARGET_DIR=os.path.join(work, "rust"), GOFLAGS="-mod=mod", XDG_CACHE_HOME=work)
        ways = {"go": ["go", "run", ".", MODEL], "java": ["sh", "run.sh"],
                "rust": ["cargo", "run", "--quiet", "--offline", "--release", "--", MODEL]}
        found = {}
        for language, words in ways.items():
            done = subprocess.run(words, cwd=os.path.join(HERE, "bindings", language), env=environment, text=True,
                                  stdout=subprocess.PIPE, check=True)
            found[language] = json.loads(done.stdout)
            print(language, json.dumps(found[language]), flush=True)
    support.save("bindings", {"nanoseconds": found})
    return 1 if any(call["over"] >= 1000 for calls in found.values() for call in calls.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
