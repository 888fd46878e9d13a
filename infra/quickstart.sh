#!/usr/bin/env bash
# Install, then run all stages on 4×4 Sudoku: boards, shards, training, evaluation. Then evaluate the
# packaged 9×9 model on boards it never saw, beside the paper's table, and write one report.
set -euo pipefail
source "$(dirname "$0")/install.sh"

remask=.venv/bin/remask
$remask doctor
$remask run infra/recipes/sudoku4.yaml
$remask eval evaluation/recipes/sudoku.yaml
$remask report runs/sudoku4/eval runs/shipped/eval --output runs/report.html
$remask revise --checkpoint runs/sudoku4/train/model --show 4133431444233244
