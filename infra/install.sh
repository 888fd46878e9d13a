#!/usr/bin/env bash
# Make .venv if it is missing and install remask into it, with torch pinned. Sourced by the other
# scripts; `bash infra/install.sh` alone works too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "remask needs Python 3.11 or newer; set PYTHON to one (found: $("$python" --version 2>&1))" >&2
  exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv

# Install again only if the requirements have changed.
stamp=.venv/installed
wanted=$(cat pyproject.toml infra/constraints.txt infra/install.sh | cksum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint infra/constraints.txt --editable '.[test]'
  echo "$wanted" > "$stamp"
fi
