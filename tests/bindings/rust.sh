#!/bin/sh
# Builds the Rust crates against the installed build, with Debian's own cargo and no network, and tests them; then the
# sample, and docs/rust.md as it is written.
# usage: rust.sh SOURCE BUILD
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
crates=$source/bindings/rust
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "rust.sh: $*" >&2
  exit 1
}

PATH=/usr/bin:$PATH # Debian's, whatever else there is
for tool in cargo cargo-clippy swig bindgen; do
  command -v $tool >/dev/null || fail "needs $tool; apt-get install cargo rust-clippy swig bindgen"
done
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/protrain"
PKG_CONFIG_PATH=$(dirname "$(find "$work/protrain" -name protrain.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/protrain" -name libprotrain.so)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$build/cache}" CARGO_HOME="$work/cargo" CARGO_TARGET_DIR="$work/target"
export CARGO_NET_OFFLINE=true CARGO_TERM_QUIET=true

# The declarations are what generate.sh makes, and what bindgen makes of the header. The safe crate uses all of them.
"$crates/generate.sh" "$work/bindings.rs"
diff "$crates/protrain-sys/src/bindings.rs" "$work/bindings.rs" || fail "bindings.rs is old; run bindings/rust/generate.sh"
bindgen "$source/include/protrain.h" --allowlist-file '.*/protrain\.h' --size_t-is-usize --no-prepend-enum-name \
  --no-layout-tests --no-doc-comments --enable-function-attribute-detection -o "$work/bindgen.rs" -- -std=c11
python3 -B "$crates/referee.py" "$work/bindings.rs" "$work/bindgen.rs" || fail "bindgen reads protrain.h otherwise"
nm -D --defined-only "$LD_LIBRARY_PATH/libprotrain.so" | sed -n 's/.* T \(protrain_\w*\).*/\1/p' >"$work/symbols"
sed -n 's/^pub const \(PROTRAIN_\w*\).*/\1/p' "$work/bindings.rs" | grep -v '^PROTRAIN_OK$' >"$work/constants"
test "$(wc -l <"$work/symbols")" -gt 40 || fail "found no symbols in libprotrain.so"
cat "$work/symbols" "$work/constants" | while read -r name; do
  grep -q "\b$name\b" "$work/bindings.rs" || fail "protrain-sys has no $name"
  grep -q "\bsys::$name\b\|= $name," "$crates"/protrain/src/*.rs || fail "protrain makes no use of $name"
done

cd "$crates"
cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps
cargo test --locked >"$work/log" 2>&1 || { cat "$work/log"; fail "the crates' tests have failed"; }
awk '/^test result: ok/ {passed += $4} END {exit passed < 35}' "$work/log" || fail "tests are missing: $(cat "$work/log")"
cd "$source/bench/bindings/rust"
cargo clippy --locked -- -D warnings

# The sample: trains in less memory than the model takes, saves, goes on, exports.
cd "$source/samples/rust"
cargo clippy --locked -- -D warnings
cargo build --locked --release
finetune=$work/target/release/finetune
model=$source/tests/fixtures/gpt2-dynamic-opset18.onnx
text=/usr/share/common-licenses/GPL-3
mkdir "$work/run"
"$finetune" "$model" $text 20 4MiB "$work/run" >"$work/log"
awk '{loss = $NF} NR == 1 {first = loss} END {exit !(NR == 3 && loss < first)}' "$work/log" || fail "the loss did not fall"
test "$(grep -cE '^\{"step":[0-9]+,"loss_bits":"[0-9a-f]{8}","grad_norm_bits":"[0-9a-f]{8}"\}$' "$work/run/run.jsonl")" = 20
"$work/protrain/bin/protrain" check "$work/run/trained.onnx" >/dev/null
status=0
"$finetune" "$model" $text 20 4KiB "$work/run" 2>"$work/log" || status=$?
test $status = 1 && grep -q '^finetune: .*smallest' "$work/log" || fail "4KiB were not refused"
status=0
"$finetune" 2>"$work/log" || status=$?
test $status = 2 && grep -q '^usage:' "$work/log" || fail "no usage"

# The page as it is written, in a home of its own and a tree that looks like a fresh one. Only what installs packages and
# compiles the library does nothing: the build is there.
mkdir -p "$work/home" "$work/tree/build" "$work/idle"
for entry in "$source"/*; do
  test "${entry##*/}" = build || ln -s "$entry" "$work/tree"
done
ln -s "$build" "$work/tree/build/release"
for tool in apt-get make; do
  ln -s /bin/true "$work/idle/$tool"
done
awk '/^```sh$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/docs/rust.md" >"$work/page"
unset PKG_CONFIG_PATH LD_LIBRARY_PATH CARGO_TARGET_DIR
cd "$work/tree"
HOME=$work/home PATH=$work/idle:$PATH sh -eu "$work/page" >"$work/log" 2>&1 || { cat "$work/log"; fail "docs/rust.md does not run"; }
grep -q '^step 50  loss 3' "$work/log" || { cat "$work/log"; fail "docs/rust.md trains otherwise than it says"; }
test -s "$work/home/trainer/trained.onnx"
