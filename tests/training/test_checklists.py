"""The checklist of training/README.md, followed step by step in a copy of the tree."""

import re
import shutil
import subprocess
import sys
from itertools import islice

import pytest
import torch
from torch.nn import functional as F

from remask.models import load
from remask.models.history import encode_rows
from remask.pipeline.runtime.recipes import load_recipe
from remask.training.loader import Loader
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.world import World
from tests.places import ROOT
from tests.training.runs import environment, log_lines, losses, write_recipe

OBJECTIVE = '''
"""Restore every editable position in one step."""

from torch.nn import functional as F

from remask.models import RevisionPolicy
from remask.training.objective.chunks import map_logits
from remask.training.objective.objective import Objective, register_objective
from remask.training.objective.result import OracleLoss


@register_objective
class RestoringObjective(Objective):
    kind = "restore"
    purpose = "to restore every position in one step"
    uses_history = False

    def loss(self, batch, step, encode):
        def cross_entropy(logits, target):
            return (F.cross_entropy(logits, target, reduction="none"),)

        hidden = encode(batch.segments, self.horizon)
        (loss,) = map_logits(
            cross_entropy,
            self.backbone.head,
            hidden[batch.editable],
            batch.target.long()[batch.editable],
            vocab_size=self.backbone.vocab_size,
            min_chunks=self.min_chunks,
        )
        return OracleLoss.without_parts(loss.mean())

    def decode_start(self, batch):
        return batch.segments.state_at(0), RevisionPolicy()

    def weight(self, batch):
        return int(batch.editable.sum())
'''
IMPORT = "from remask.training.objective.restoring import RestoringObjective\n"


@pytest.fixture
def tree(tmp_path):
    """A copy of the packages that training needs, to be edited."""
    for name in ("remask", "kernels", "models", "pipeline", "training"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=ignored)
    return tmp_path / "tree"


def first_loss(path):
    """Cross-entropy to the target of the first batch, by another way than the objective's."""
    recipe = load_recipe(TrainRecipe, path, ["objective.kind=sft"])
    plan = make_plan(recipe, World(rank=0, size=1, local_rank=0, local_size=1))
    backbone = plan.make_backbone()
    ((batch,),) = islice(Loader(plan.train).batches(), 1)
    config = backbone.history
    with torch.no_grad():
        embeds = encode_rows(
            backbone.token_embedding, batch.segments, horizon=plan.horizon, config=config
        )
        logits = backbone.logits(embeds)
    return float(F.cross_entropy(logits[batch.editable], batch.target.long()[batch.editable]))


def test_an_objective_is_added_as_the_checklist_says(tree, boards, tmp_path):
    package = tree / "training" / "objective"
    (package / "restoring.py").write_text(OBJECTIVE)
    contents = (package / "__init__.py").read_text()
    contents = re.sub(r"(?m)^from ", f"{IMPORT}from ", contents, count=1)
    (package / "__init__.py").write_text(contents)
    path = write_recipe(tmp_path, "run", boards, steps=2, objective={"kind": "restore"})
    command = [sys.executable, "-m", "remask.training.train", path]
    done = subprocess.run(command, cwd=tree, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    logged = losses(tmp_path / "run")
    assert sorted(logged) == [1, 2]
    assert logged[1] == pytest.approx(first_loss(path), rel=1e-5)
    assert 0 <= log_lines(tmp_path / "run", "held_out")[-1]["right"] <= 1
    model = tmp_path / "run" / "model"
    assert load(model).history.variant == "none"
    card = (model / "README.md").read_text()
    assert "Trained with remask to restore every position in one step." in card


def test_the_checklist_names_what_is_there():
    text = (ROOT / "training" / "README.md").read_text()
    names = set(re.findall(r"`((?:objective|run|recipes)?/?[a-z_]+\.py)", text))
    assert len(names) > 20
    for name in names:
        assert (ROOT / "training" / name).is_file(), name
    listed = {name.split("/")[0] for name in names}
    for path in (ROOT / "training").glob("[a-z]*.py"):
        assert path.name in listed, f"{path.name} is not in training/README.md"
