#!/bin/sh
# Regenerates the generated files of the bindings from ../include/protrain.h and protrain.i.
# usage: generate.sh [go] [java] [rust]    without a language: all of them
set -eu
cd "$(dirname "$0")"
for language in ${*:-go java rust}; do
  "$language/generate.sh"
done
