# Sourced by the tests of the command. `run ARGS` keeps status, stdout and stderr; the others complain and leave.
# Arguments of each test: the command, the folder of fixtures.
set -u
command=$1
fixtures=$2
model=$fixtures/gpt2-dynamic-opset18.onnx
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

run() {
  ran="protrain $*"
  "$command" "$@" >out 2>err
  status=$?
}

wrong() {
  echo "$ran"
  echo "$1"
  echo "--- status $status, stdout:"
  head -c 2000 out
  echo "--- stderr:"
  head -c 2000 err
  exit 1
}

leaves_with() { [ "$status" -eq "$1" ] || wrong "expected status $1"; }
prints() { grep -qe "$1" out || wrong "expected '$1' on stdout"; }
complains() { grep -qe "$1" err || wrong "expected '$1' on stderr"; }
quiet() { [ ! -s err ] || wrong "expected nothing on stderr"; }

# refused STATUS SENTENCE ARGS...: leaves with it, says the sentence on stderr, and nothing on stdout.
refused() {
  expected=$1
  sentence=$2
  shift 2
  run "$@"
  leaves_with "$expected"
  complains "$sentence"
  [ ! -s out ] || wrong "expected nothing on stdout"
}
