#!/bin/bash
# Checks that the manual page lists the command's options, and that bash completes them.
# usage: command.sh SOURCE COMMAND
set -eu
source=$1
command=$2
fail() {
  echo "command: $*" >&2
  exit 1
}

python3 "$source/scripts/manual.py" "$command" "$source/docs/protrain.1"
if command -v groff >/dev/null; then
  warnings=$(groff -man -Tutf8 -ww -z "$source/docs/protrain.1" 2>&1)
  [ -z "$warnings" ] || fail "$warnings"
fi

PATH=$(dirname "$command"):$PATH
. "$source/packaging/completions/protrain.bash"
# completes EXPECTED WORD...: checks that EXPECTED lists the completions of the last WORD.
completes() {
  local expected=$1
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  _protrain "$1"
  [ "${COMPREPLY[*]-}" = "$expected" ] || fail "'$*' is completed by '${COMPREPLY[*]-}', not '$expected'"
}
completes "train eval check plan profile inspect merge --help --version" protrain ""
completes "train" protrain tr
completes "--steps --step-interval --step-factor" protrain train --st
completes "--beta1 --beta2" protrain plan model.onnx --be
completes "same next" protrain train model.onnx --labels ""
completes "bf16" protrain plan --precision b
completes "cross_entropy mse l1 bce ctc kl cosine triplet infonce dpo mean" protrain train --loss ""
completes "--tie" protrain train --ti
completes "" protrain train ""      # bash completes files itself
[ "$(complete -p protrain)" = "complete -o default -F _protrain protrain" ] || fail "files are not completed"
