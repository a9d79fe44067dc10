#!/bin/sh
# Starts groups of ranks that try their channels, over MPI, Gloo and the stand-in for NCCL.
# usage: ranks.sh PROGRAM TRANSPORT [PLUGIN...]    openmpi, mpich, gloo (which meets in a folder), gloo-port or nccl
#        The plugins take the place of those beside the program.
set -eu
program=$1 transport=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -eq 0 ] || { # the program looks for plugins beside itself
  cp "$program" "$@" "$work"
  program=$work/$(basename "$program")
}
over=gloo
[ "$transport" != nccl ] || over=nccl

# Open MPI refuses to run for root, and more ranks than cores, unless it is told otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# A launcher may hang after its ranks have ended. It is killed then, because only what the ranks say counts.
limit='timeout -k 5 60'
start() { # SCENARIO RANKS
  case $transport in
    openmpi) $limit mpirun.openmpi --oversubscribe -n "$2" "$program" "$1" mpi ;;
    mpich) $limit mpirun.mpich -n "$2" "$program" "$1" mpi ;;
    gloo* | nccl)
      even=$(mktemp -d -p "$work") odd=
      if [ "$transport" = gloo-port ]; then # some ranks come over IPv6, if this machine has it
        port=$("$program" port)
        even=127.0.0.1:$port
        grep -q 'lo$' /proc/net/if_inet6 2>/dev/null && odd="[::1]:$port"
      fi
      rank=0
      while [ "$rank" -lt "$2" ]; do
        rendezvous=$even
        [ $((rank % 2)) -eq 0 ] || rendezvous=${odd:-$even}
        $limit "$program" "$1" $over "$rank" "$2" "$rendezvous" &
        rank=$((rank + 1))
      done
      wait
      ;;
  esac
}

case $transport in
  gloo* | nccl) ;;
  *)
    mpirun=mpirun.$transport
    [ "$transport" = mpich ] || mpirun="$mpirun --oversubscribe"
    # shellcheck disable=SC2086  # MPICH's mpirun may get a SIGPIPE from programs that end at once
    timeout 30 $mpirun -n 2 sleep 0.1 >"$work/log" 2>&1 || {
      echo "skipped: $mpirun does not start programs here: $(head -n 1 "$work/log")"
      exit 77
    }
    ;;
esac

# expect SCENARIO RANKS SILENT: all ranks except SILENT of them must print that all went as expected.
expect() {
  began=$(date +%s)
  start "$1" "$2" >"$work/log" 2>"$work/errors" || true # an MPI ends with an error if a rank has failed
  good=$(grep -c "$1 as expected" "$work/log" || true)
  [ "$good" -eq $(($2 - $3)) ] || {
    echo "$transport $1 with $2 ranks: $good ranks of $2 did as expected"
    cat "$work/log" "$work/errors"
    exit 1
  }
  echo "$transport $1 with $2 ranks: as expected, in $(($(date +%s) - began)) s"
}

for ranks in 1 2 4; do
  expect exchange $ranks 0
  expect agree $ranks 0
done
for ranks in 2 3; do
  expect abort $ranks 0
  expect late $ranks 0
  expect cancelled $ranks 0
done
expect reuse 3 0
expect reuse-meanwhile 3 0
expect absent 3 0
expect absent-by-0 3 0
# A launcher of MPI ends the job of a rank that is killed.
case $transport in
  nccl)
    expect killed 3 1
    expect killed-by-0 3 1
    expect abort-by-0 3 0
    expect quits 3 1
    expect no-gpu 3 0
    expect no-gpu-by-0 3 0
    ;;
  gloo*)
    expect killed 4 1
    expect killed-by-0 3 1
    expect abort-by-0 3 0
    expect quits 3 1
    expect quits-by-0 3 1
    ;;
  *) expect forked 2 0 ;;
esac
[ "$transport" != gloo ] || expect used-by-0 3 0
[ "$transport" != gloo-port ] || {
  expect strangers 3 0
  expect refused 1 0
  expect unconnected 1 0
}
