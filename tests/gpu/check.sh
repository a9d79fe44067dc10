#!/bin/sh
# All checks that need a GPU, or the parts that are named: tests/gpu/check.sh BUILD [PART ...]. check.py says more.
exec python3 "$(dirname "$0")/check.py" "$@"
