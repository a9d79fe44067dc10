# Sourced by the tests of the command. `run ARGS` runs the command and stores its status, stdout and stderr. The other
# functions check these, and end the test with a message if they are wrong. The arguments of each test are the command
# and the folder of fixtures.
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
  forget_disturbance
}

# Leaves out the warning that others used the cores while a session measured its kernels. Other tests may do so.
forget_disturbance() { sed -i '/^protrain: warning: other processes used the cores while/d' err; }

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
quiet() {
  forget_disturbance
  [ ! -s err ] || wrong "expected nothing on stderr"
}

# refused STATUS SENTENCE ARGS...: the command must exit with STATUS, print SENTENCE to stderr and nothing to stdout.
refused() {
  expected=$1
  sentence=$2
  shift 2
  run "$@"
  leaves_with "$expected"
  complains "$sentence"
  [ ! -s out ] || wrong "expected nothing on stdout"
}

# Sends Ctrl-C, or the signal that `signal` names, to the process `child` once the command given holds, at the latest
# after a minute. Takes its status.
interrupt_once() { # CONDITION...
  waited=0
  until "$@" || [ $waited -eq 600 ]; do
    waited=$((waited + 1))
    sleep 0.1
  done
  kill -${signal:-INT} $child
  wait $child
  status=$?
}
