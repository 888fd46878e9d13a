#!/usr/bin/env bash
# Install, lint, type-check, test. Arguments go to pytest: bash infra/test.sh -k decoding
set -euo pipefail
source "$(dirname "$0")/install.sh"

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/basedpyright --warnings
exec .venv/bin/python -m pytest "$@"
