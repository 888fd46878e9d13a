#!/usr/bin/env bash
# Install, lint, type-check, test. Arguments go to pytest: bash infra/test.sh -k decoding
set -euo pipefail
source "$(dirname "$0")/install.sh"

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/python infra/link_tree.py build/links
.venv/bin/basedpyright --warnings
# Two processes of one thread each; tests of one file stay together.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec .venv/bin/python -m pytest -n 2 --dist loadscope "$@"
