#!/usr/bin/env bash
# Install, then the main job: train a small reviser on 4×4 Sudoku and let it mend wrong boards.
# Arguments go to the job: bash infra/quickstart.sh --minutes 2
set -euo pipefail
source "$(dirname "$0")/install.sh"

.venv/bin/remask doctor
exec .venv/bin/python -m infra.tour "$@"
