"""The checklist "to add a rule": one line, and a recipe that gives the rule a share."""

import os
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import yaml

from remask.pipeline import read_rows, states
from tests.places import ROOT

RECIPE = {
    "source": {"kind": "sudoku", "side": 4, "train": 40, "held_out": 4},
    "trajectories": {"noisy_count": [4, 8], "rules": {"wrong": 0.5, "mask": 0.4, "hesitate": 0.1}},
    "proposal": {"kind": "wrong_digit"},
    "run": {"workers": 0},
}


def test_a_rule_is_one_line(tmp_path):
    clone = tmp_path / "clone"
    for name in ("remask", "kernels", "models", "pipeline"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    rules = clone / "pipeline" / "rules.py"
    line = '        "mask": (M, X),\n'
    text = rules.read_text()
    assert text.count(line) == 1
    rules.write_text(text.replace(line, f'{line}        "hesitate": (M, X, M, X),\n'))
    (clone / "recipe.yaml").write_text(yaml.safe_dump(RECIPE | {"output": str(tmp_path / "data")}))
    done = subprocess.run(
        [sys.executable, "-m", "remask.pipeline.build", "recipe.yaml"],
        cwd=clone,
        env=os.environ | {"PYTHONPATH": str(clone)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

    table = pl.read_parquet(tmp_path / "data" / "manifest.parquet")
    assert table["hesitate"].sum() > 0
    assert table["recorded"].sum() == 0
    hesitating = 0
    for path in table["path"]:
        for row in read_rows(str(tmp_path / "data" / path)):
            all_states = states(row)  # [T+1, N]
            is_masked = all_states == row.mask_id
            turns = (np.diff(is_masked.astype(int), axis=0) != 0).sum(0)
            hesitating += int((is_masked[0] & (turns == 3)).sum())
    assert hesitating == table["hesitate"].sum()
