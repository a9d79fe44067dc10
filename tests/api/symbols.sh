#!/bin/sh
# The library must export all functions of protrain.h and nothing else.
# usage: symbols.sh LIBRARY HEADER
set -eu
declared=$(grep -oE '^PROTRAIN_(API|CHECKED) .*[ *](protrain_[a-z0-9_]+)\(' "$2" | grep -oE 'protrain_[a-z0-9_]+\(' | tr -d '(' | sort)
exported=$(nm -D --defined-only "$1" | awk '$2 == "T" || $2 == "D" || $2 == "B" || $2 == "W" || $2 == "V" {print $3}' |
  sed 's/@.*//' | grep -v '^PROTRAIN_' | sort)
if [ "$declared" != "$exported" ]; then
  echo "declared and exported functions differ:"
  printf '%s\n' "$declared" > declared.txt
  printf '%s\n' "$exported" | diff declared.txt - || exit 1
fi
