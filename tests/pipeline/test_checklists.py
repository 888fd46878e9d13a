"""The checklists of pipeline/README.md, followed to the letter in a copy of the repository.

A checklist's blocks are applied in order. The first line of a block names a file: a python or yaml
block is its content, a diff block changes it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from remask.pipeline import open_manifest, read_rows
from tests.places import ROOT

ROOMS = ("kernels", "models", "pipeline", "remask")


@pytest.fixture
def clone(tmp_path):
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def follow(clone: Path, title: str) -> str:
    """Apply the blocks of a checklist; return the name of its recipe."""
    text = (clone / "pipeline" / "README.md").read_text()
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```(python|diff|yaml)\n ?# (\S+)\n(.*?)^```$", section, re.M | re.S)
    assert [language for language, _, _ in blocks] == ["python", "diff", "yaml"]
    for language, name, body in blocks:
        path = clone / name
        if language == "diff":
            path.write_text(changed(path.read_text(), body))
        else:
            assert not path.exists()
            path.write_text(body)
    return blocks[-1][1]


def changed(text: str, diff: str) -> str:
    """Apply a diff without line numbers: each line is looked for after the one before it."""
    lines, at = text.splitlines(), 0
    for line in diff.splitlines():
        mark, content = line[0], line[1:]
        if mark == "+":
            lines.insert(at, content)
            at += 1
        else:
            at = lines.index(content, at) + 1
        if mark == "-":
            at -= 1
            del lines[at]
    return "\n".join(lines) + "\n"


def build(clone: Path, recipe: str) -> Path:
    """Build by the command, with the code of the clone; return the data set's folder."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "remask.pipeline.build", recipe, "run.workers=0"],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return clone / "data" / Path(recipe).stem


def test_a_source_is_added_as_the_checklist_says(clone):
    data = build(clone, follow(clone, "To add a source"))
    table = open_manifest(str(data)).collect()
    assert table["rows"].to_list() == [100, 100]
    rows = [row for path in table["path"] for row in read_rows(str(data / path))]
    assert len({row.target.tobytes() for row in rows}) > 190
    assert all(np.array_equal(row.target, row.target[::-1]) for row in rows)


def test_a_proposal_is_added_as_the_checklist_says(clone):
    data = build(clone, follow(clone, "To add a proposal"))
    table = open_manifest(str(data)).collect()
    assert set(table["proposal"]) == {"neighbour"}
    assert table["mean_tv"].to_list() == [round(1 - 1 / 3, 6)] * 3
    assert table["wrong"].sum() > 100
