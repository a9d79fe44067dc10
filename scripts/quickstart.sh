#!/bin/sh
# Installs what is needed, builds, and trains the repository's small GPT-2 on the texts of this machine's licenses.
# usage: quickstart.sh [more options of `protrain train`, none of those below]
set -eu
cd "$(dirname "$0")/.."

scripts/install-dependencies.sh
cmake --preset release
cmake --build --preset release --target protrain_command

# Each byte of the text is a token, and the model knows 512 tokens. Converting Latin-1 to UTF-16 writes every byte as a
# uint16, which is the format of --tokens.
out=build/quickstart
mkdir -p $out
find /usr/share/common-licenses -type f -exec cat {} + | iconv -f ISO-8859-1 -t UTF-16LE >$out/text.bin

build/release/tools/protrain train tests/fixtures/gpt2-dynamic-opset18.onnx --steps 2000 \
  --tokens $out/text.bin --batch 8 --sequence 64 --labels same --learning-rate 1e-3 --weight-decay 0.1 \
  --metrics $out/metrics.jsonl --export $out/trained.onnx "$@"
echo "The trained model is $out/trained.onnx, each step a line of $out/metrics.jsonl."
