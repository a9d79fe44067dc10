#!/bin/sh
# Runs all checks that need a GPU, or only the named parts: tests/gpu/check.sh BUILD [PART ...]. See check.py.
exec python3 "$(dirname "$0")/check.py" "$@"
