#!/bin/sh
# Writes internal/lib/lib.go, lib_wrap.cxx and lib_wrap.h from ../protrain.i. Needs SWIG 4.1.
set -eu
cd "$(dirname "$0")/.."
lib=go/internal/lib
swig -go -cgo -c++ -intgosize 64 -module lib -I../include -outdir $lib -o $lib/lib_wrap.cxx protrain.i
