"""The checklists of models/README.md, followed step by step in a copy of the tree."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest

from remask.models.backbones import BACKBONES
from remask.models.decoding import POLICIES
from tests.places import ROOT

ROOMS = ("kernels", "pipeline", "training", "evaluation", "infra")
README = (ROOT / "models/README.md").read_text()

USE_BACKBONE = """
import json, torch, remask
from pathlib import Path
from safetensors.torch import save_file
from remask import models
from remask.models.checkpoints.adapter import add_lora
from remask.models.checkpoints.checkpoint import outline

torch.manual_seed(0)
model = models.create({"kind": "tiny", "width": 8})
models.save(model, "saved")
again = models.load("saved")
assert type(again).__name__ == "TinyMDM" and again.config == model.config
start = torch.randint(0, 10, (6, 12))
result = models.revise(again, start, max_steps=9)
assert (result.tokens != 0).all() and not torch.equal(result.tokens, start)
assert torch.equal(result.tokens, models.revise(model, start, max_steps=9, batch_size=1).tokens)

Path("published").mkdir()
config = {"model_type": "tiny-lm", "vocab_size": 10, "hidden_size": 8}
Path("published/config.json").write_text(json.dumps(config))
tensors = {f"lm.{name}": x for name, x in model.state_dict().items()}
save_file(tensors, "published/model.safetensors")
assert outline("published").kind == "tiny"
published = models.load("published")
assert all(torch.equal(x, published.state_dict()[k]) for k, x in model.state_dict().items())

try:
    models.create({"kind": "tiny", "width": 0})
except ValueError as error:
    print(error)
add_lora(again, 2, 4.0)
print(remask.__file__)
"""
USE_POLICY = """
import torch, remask
from remask import models

torch.manual_seed(0)
model = models.SudokuMDM(models.SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16))
models.save(model, "model")
policy = models.decoding.LeftToRight(count=3)
result = models.revise(model, torch.zeros(2, 16, dtype=torch.long), policy=policy, max_steps=9)
assert result.stats.steps.tolist() == [6, 6] and not result.stats.remasked.any()
masked = (result.trajectory == 0).sum(-1)[:, 0].tolist()
assert masked == [16, 13, 10, 7, 4, 1, 0], masked
assert (result.trajectory[1, :, :3] != 0).all()
print(remask.__file__)
"""
RECIPE = """
output: scores
suites: {boards: {kind: sudoku, side: 4, boards: 3, wrong: [1, 4]}}
checkpoints: {small: model}
decoders: {ltr: {policy: left_to_right, settings: {count: 2}, start: oracle, max_steps: 4}}
run: {workers: 0}
"""


@pytest.fixture
def clone(tmp_path):
    """A clone whose models/ may be edited."""
    for room in ROOMS:
        (tmp_path / room).symlink_to(ROOT / room)
    for folder in ("models", "remask"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    return tmp_path


def follow(clone, heading, path):
    """Write the file that a checklist shows, and add the import that it names."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (line,) = re.findall(r"`(from remask\.models\.\w+\.\w+ import \w+)`", section)
    (clone / path).write_text(code)
    contents = (clone / path).with_name("__init__.py")
    contents.write_text(contents.read_text() + f"{line}  # noqa\n")


def run(clone, *arguments, status=0):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=clone,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == status, done.stderr[-3000:]
    return done


def test_a_backbone_is_added_by_its_checklist(clone):
    follow(clone, "To add a backbone", "models/backbones/tiny.py")
    out = run(clone, "-c", USE_BACKBONE).stdout.splitlines()
    assert out == [
        "model: width must lie in [1, 4194304], got 0",
        str(clone / "remask/__init__.py"),
    ]


def test_a_policy_is_added_by_its_checklist(clone):
    follow(clone, "To add a decoder (policy)", "models/decoding/left_to_right.py")
    assert run(clone, "-c", USE_POLICY).stdout == f"{clone / 'remask/__init__.py'}\n"
    (clone / "recipe.yaml").write_text(RECIPE)
    run(clone, "-m", "remask.evaluation.evaluate", "recipe.yaml")
    assert (clone / "scores/scores.parquet").exists()
    wrong = "decoders.ltr.settings.count=0"
    refused = run(clone, "-m", "remask.evaluation.evaluate", "recipe.yaml", wrong, status=2)
    assert "left_to_right settings: count must be at least 1, got 0" in refused.stderr


@pytest.mark.parametrize(
    ("folder", "decorator", "table", "attribute"),
    [
        ("backbones", "register_backbone", BACKBONES, "kind"),
        ("decoding", "register_policy", POLICIES, "name"),
    ],
)
def test_every_registered_class_of_the_tree_is_imported(folder, decorator, table, attribute):
    names = set()
    for path in (ROOT / "models" / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(
                isinstance(x, ast.Name) and x.id == decorator for x in node.decorator_list
            ):
                values = {
                    x.targets[0].id: x.value.value
                    for x in node.body
                    if isinstance(x, ast.Assign)
                    and isinstance(x.targets[0], ast.Name)
                    and isinstance(x.value, ast.Constant)
                }
                names.add(values[attribute])
    assert names == set(table)


def test_the_readme_names_every_file():
    files = [p.name for p in (ROOT / "models").rglob("*.py") if p.name != "__init__.py"]
    assert [name for name in files if f"`{name}`" not in README and f"/{name}`" not in README] == []
