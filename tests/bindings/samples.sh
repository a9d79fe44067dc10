#!/bin/sh
# Builds the four samples against an installed libprotrain and runs each with a budget below the resident plan's memory.
# All must write the same run.jsonl and the same trained model, byte for byte. Then trains the classifiers and
# the adapters.
# usage: samples.sh SOURCE BUILD [LANGUAGES]
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
languages=${3:-c go rust java}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"  # shows that an installed tree can be moved
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name protrain.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/prefix" -name libprotrain.so.0)")
PATH=/usr/bin:$PATH # prefers Debian's cargo and rustc
export PATH PKG_CONFIG_PATH LD_LIBRARY_PATH
export XDG_CACHE_HOME="$build/cache" GOCACHE="$build/cache/go" GOPATH="$work/go" GOPROXY=off
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
export CGO_CXXFLAGS="-O0 -DWORK=$work" # Go's cache depends on these flags, but not on headers
mkdir "$work/root"
cp -r "$source/bindings" "$source/samples" "$work/root"
cd "$work/root"

fail() {
  echo "samples.sh: $*" >&2
  exit 1
}

build_c() { make -s -C samples/c clean finetune classify adapt; }
run_c() { samples/c/finetune "$@"; }
classify_c() { samples/c/classify "$@"; }
adapt_c() { samples/c/adapt "$@"; }
build_go() {
  (cd samples/go && go build -o "$work/finetune-go" && go build -o "$work/classify-go" ./classify &&
    go build -o "$work/adapt-go" ./adapt)
}
run_go() { "$work/finetune-go" "$@"; }
classify_go() { "$work/classify-go" "$@"; }
adapt_go() { "$work/adapt-go" "$@"; }
build_rust() { (cd samples/rust && cargo build -q --offline --locked --target-dir ../target); }
run_rust() { samples/target/debug/finetune "$@"; }
classify_rust() { samples/target/debug/classify "$@"; }
adapt_rust() { samples/target/debug/adapt "$@"; }
build_java() {
  make -s -C bindings/java OUT="$work/jar" && javac -cp "$work/jar/protrain.jar" -d "$work/classes" samples/java/*.java
}
start_java() { java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$work/jar/protrain.jar:$work/classes" "$@"; }
run_java() { start_java Finetune "$@"; }
classify_java() { start_java Classify "$@"; }
adapt_java() { start_java Adapt "$@"; }

model=$source/tests/fixtures/gpt2-dynamic-opset18.onnx
text=/usr/share/common-licenses/GPL-3
memory=6MiB
steps=20

# The budget must be enough with a disk, and the resident plan must need more than 6 MiB.
"$work/prefix/bin/protrain" plan "$model" --dim batch=8 --dim sequence=64 --memory $memory --offload-dir . --json |
  python3 -c 'import json, sys; plan = json.load(sys.stdin)
whole = plan["resident"]["device_peak_bytes"]
sys.exit(not (plan["feasible"] and plan["disk_bytes"] > 0 and whole > 6 << 20))' ||
  fail "$memory is no budget to try"

for language in $languages; do
  out=$work/$language
  mkdir "$out-run" "$out-refused"
  "build_$language"
  "run_$language" "$model" "$text" $((steps + 4)) $memory "$out-run" >"$out-log" # the next run must not resume this one
  "run_$language" "$model" "$text" $steps $memory "$out-run" >"$out-log"

  # Each sample must report progress, lower the loss, write a model that can be trained, and fail with a clear error.
  test "$(cut -d ' ' -f 1,2 "$out-log" | tr '\n' ' ')" = 'step 1 step 10 step 20 ' || fail "$language tells no progress"
  awk '{loss = $4} NR == 1 {first = loss} END {exit !(loss < first)}' "$out-log" || fail "$language does not learn"
  "$work/prefix/bin/protrain" check "$out-run/trained.onnx" >/dev/null
  code=0
  "run_$language" "$model" "$text" $steps 1MiB "$out-refused" >/dev/null 2>"$out-error" || code=$?
  test $code = 1 || fail "$language leaves with $code where 1 MiB is refused"
  grep -q '^finetune: no plan fits' "$out-error" || fail "$language says $(cat "$out-error")"
  code=0
  "run_$language" "$model" >/dev/null 2>&1 || code=$?
  test $code = 2 || fail "$language leaves with $code for wrong arguments"
done

first=${languages%% *}
test "$(wc -l <"$work/$first-run/run.jsonl")" = $steps || fail "run.jsonl has not a line each step"
mkdir "$work/fresh"
"run_$first" "$model" "$text" $steps $memory "$work/fresh" >/dev/null
cmp "$work/fresh/run.jsonl" "$work/$first-run/run.jsonl"
for language in $languages; do
  for file in run/run.jsonl run/trained.onnx log; do
    cmp "$work/$first-$file" "$work/$language-$file"
  done
done

# Texts that do not change with this project: prose, C and Python.
head -c 40000 /usr/include/elf.h >"$work/header"
head -c 40000 "$(python3 -c 'import argparse; print(argparse.__file__)')" >"$work/script"
# The held-out windows as the samples take them: every fifth, in the order that a product with 7919 gives.
cat >"$work/held_out.py" <<'END'
import sys
from arrays import write_npy

windows = []
for label, path in enumerate(sys.argv[2:]):
    text = open(path, "rb").read()
    cut = [text[at:at + 64] for at in range(0, len(text) - 63, 64)]
    windows += [(window, label) for window in cut[4::5]]
count = len(windows) // 32 * 32
taken = [windows[i * 7919 % len(windows)] for i in range(count)]
write_npy(f"{sys.argv[1]}/tokens.npy", "<i8", (count // 32, 32, 64), [byte for window, _ in taken for byte in window])
write_npy(f"{sys.argv[1]}/labels.npy", "<i8", (count // 32, 32), [label for _, label in taken])
END
PYTHONPATH=$source/tests/tools PYTHONDONTWRITEBYTECODE=1 python3 "$work/held_out.py" "$work" $text "$work/header" "$work/script"
# Each classifier must tell texts apart, stop early, keep its best state, and do so in the same steps as the others.
for language in $languages; do
  out=$work/$language
  mkdir "$out-classes"
  "classify_$language" "$source/tests/fixtures/classifier.onnx" "$out-classes" $text "$work/header" \
    "$work/script" >"$out-passes"
  awk '$2 < 40 && $6 > 0.9 {right = 1} END {exit !(right && NR < 40)}' "$out-passes" ||
    fail "$language does not classify: $(cat "$out-passes")"
  best=$(sort -k 4,4 "$out-passes" | head -1 | cut -d ' ' -f 2)
  test "$(ls "$out-classes" | grep -c step-)" -ge 1 || fail "$language saved nothing"
  test "$((best + 3))" -eq "$(wc -l <"$out-passes")" || fail "$language does not stop three passes after the best"
  cmp "$work/$first-passes" "$out-passes"
  cmp "$work/$first-classes/classifier.onnx" "$out-classes/classifier.onnx"
  # The exported model has the loss of the best pass.
  exported=$("$work/prefix/bin/protrain" eval "$out-classes/classifier.onnx" --loss cross_entropy \
    --input tokens="$work/tokens.npy" --input labels="$work/labels.npy" | sed -n 's/^loss \([0-9.]*\),.*/\1/p')
  near=$(awk -v loss="$exported" 'function far(x) {return x < loss ? loss - x : x - loss}
    NR == 1 || far($4) < least {least = far($4); pass = $2} END {print least < 1e-4 ? pass : "none"}' "$out-passes")
  test "$near" = "$best" || fail "$language exports pass $near, with the loss $exported: $(cat "$out-passes")"
done

# Adapters must make the loss smaller than the base's, and be the same in each language, as must the merged model.
for language in $languages; do
  out=$work/$language
  mkdir "$out-adapted"
  "adapt_$language" "$model" "$text" 10 '*.c_attn.weight' "$out-adapted" >"$out-losses"
  awk '$1 == "adapted" {better = $2 < $4} END {exit !better}' "$out-losses" || fail "$language does not adapt"
  cmp "$work/$first-losses" "$out-losses"
  diff -r "$work/$first-adapted" "$out-adapted"
done

# Go's service must give the same model with several ranks as with one, even after one of the ranks was killed.
case " $languages " in
  *' go '*) ;;
  *) exit 0 ;;
esac
[ -f "$LD_LIBRARY_PATH/libprotrain_gloo.so" ] || {
  echo "samples.sh: no plugin for Gloo: ranks of samples/go not tried"
  exit 0
}
(cd samples/go && go build -o "$work/ranks" ./ranks)
mkdir "$work/one" "$work/three"
"$work/ranks" "$model" "$text" 20 1 "$work/one" >"$work/one-log"
"$work/ranks" "$model" "$text" 20 3 "$work/three" >"$work/three-log" 2>"$work/three-error" &
service=$!
waited=0
until [ -d "$work/three/step-0000000005" ]; do
  waited=$((waited + 1))
  test $waited -lt 600 || fail 'three ranks saved nothing'
  sleep 0.1
done
read -r killed _ <<CHILDREN
$(cat /proc/$service/task/*/children)
CHILDREN
kill -9 "$killed"
wait $service || fail "the service with a killed rank said $(cat "$work/three-error")"
grep -q 'attempt 1: rank' "$work/three-error" || fail 'no rank was started again'
cmp "$work/one/trained.onnx" "$work/three/trained.onnx"
