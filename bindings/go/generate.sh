#!/bin/sh
# Writes lib.go, lib_wrap.cxx and lib_wrap.hxx in internal/lib from ../protrain.i. Needs SWIG 4.1.
set -eu
cd "$(dirname "$0")/.."
lib=go/internal/lib
swig -go -cgo -c++ -intgosize 64 -module lib -I../include -outdir $lib -o $lib/lib_wrap.cxx \
  -oh $lib/lib_wrap.hxx protrain.i
