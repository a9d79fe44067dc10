#!/bin/sh
# Builds the Rust crates against the installed build, with Debian's cargo and no network, and tests them. Then runs the
# commands of docs/rust.md. samples.sh runs the sample; generated.sh checks the generated files.
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

PATH=/usr/bin:$PATH # prefers Debian's tools
for tool in cargo cargo-clippy bindgen; do
  command -v $tool >/dev/null || fail "needs $tool; apt-get install cargo rust-clippy bindgen"
done
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/protrain"
PKG_CONFIG_PATH=$(dirname "$(find "$work/protrain" -name protrain.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/protrain" -name libprotrain.so)")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$build/cache}" CARGO_HOME="$work/cargo" CARGO_TARGET_DIR="$work/target"
export CARGO_NET_OFFLINE=true CARGO_TERM_QUIET=true CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0

# The declarations must be those that bindgen generates from the header, and the safe crate must use each.
bindings=$crates/protrain-sys/src/bindings.rs
usize=--size_t-is-usize # later versions of bindgen do this by default
bindgen --help | grep -q -e " $usize" || usize=
# shellcheck disable=SC2086
bindgen "$source/include/protrain.h" --allowlist-file '.*/protrain\.h' $usize --no-prepend-enum-name \
  --no-layout-tests --no-doc-comments --enable-function-attribute-detection -o "$work/bindgen.rs" -- -std=c11
python3 -B "$crates/referee.py" "$bindings" "$work/bindgen.rs" || fail "bindgen reads protrain.h otherwise"
for name in $(sed -n 's/^ *pub \(fn\|const\) \(\w*\).*/\2/p' "$bindings"); do
  test "$name" = PROTRAIN_OK || grep -q "\bsys::$name\b\|= $name," "$crates"/protrain/src/*.rs ||
    fail "protrain makes no use of $name"
done

cd "$crates"
cargo clippy --locked --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps
cargo test --locked >"$work/log" 2>&1 || { cat "$work/log"; fail "the crates' tests have failed"; }
awk '/^test result: ok/ {passed += $4} END {exit passed < 35}' "$work/log" || fail "tests are missing"
for other in samples/rust bench/bindings/rust; do
  cd "$source/$other"
  cargo clippy --locked -- -D warnings
done

# Links the sample statically, if a static library exists. The program must start without libprotrain.so.
if [ -e "$LD_LIBRARY_PATH/libprotrain.a" ]; then
  cd "$source/samples/rust"
  PROTRAIN_STATIC=1 cargo build --locked --target-dir "$work/static"
  code=0
  env -u LD_LIBRARY_PATH "$work/static/debug/finetune" 2>"$work/log" || code=$?
  grep -q '^usage' "$work/log" && test $code = 2 || { cat "$work/log"; fail "PROTRAIN_STATIC does not link statically"; }
fi

# Runs the blocks marked sh of docs/rust.md with a fresh home folder, in a tree that links to the repository's files.
# apt-get and make do nothing there, because the packages and the build exist.
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
HOME=$work/home PATH=$work/idle:$PATH sh -eu "$work/page" >"$work/log" 2>&1 &&
  grep -q '^step 50  loss 3' "$work/log" && test -s "$work/home/train-rust/trained.onnx" ||
  { cat "$work/log"; fail "docs/rust.md does not do what it says"; }
