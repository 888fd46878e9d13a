"""More steps for a run that has done some: the run that would have been, or a refusal."""

import json
import shutil

import pytest

from remask.training.optimizer import OptimizerConfig
from remask.training.run.folder import RunFolder
from tests.training.runs import losses, run_together, write_recipe

CONSTANT = {"lr": 0.01, "warmup": 2, "decay": "constant"}
COSINE = CONSTANT | {"decay": "cosine"}
LATE = COSINE | {"warmup": 20}
"""Warms up until long after these runs end."""


@pytest.fixture(scope="module")
def runs(boards, tmp_path_factory):
    """Runs that began towards fewer steps than they are given later, and what was said of them."""
    folder = tmp_path_factory.mktemp("runs")

    def write(name, output=None, **changes):
        output = str(folder / (output or name))
        return write_recipe(folder, name, boards, output=output, **changes)

    first = [
        write("longer", steps=4, optimizer=CONSTANT),
        write("warming", steps=4, optimizer=LATE),
        write("epochs", steps=None, epochs=0.2, optimizer=CONSTANT),
        write("shorter", steps=6, optimizer=CONSTANT),
        write("falling", steps=4, optimizer=COSINE),
        write("other", steps=4, optimizer=CONSTANT),
    ]
    run_together(first)
    for name in ("model", "outcome.json"):
        copy = shutil.copytree if name == "model" else shutil.copy
        copy(folder / "longer" / name, folder / f"before-{name}")
    then = [
        write("longer-7", "longer", steps=7, optimizer=CONSTANT),
        write("warming-7", "warming", steps=7, optimizer=LATE),
        write("epochs-7", "epochs", steps=None, epochs=0.46, optimizer=CONSTANT),
        write("shorter-3", "shorter", steps=3, optimizer=CONSTANT),
        write("falling-7", "falling", steps=7, optimizer=COSINE),
        write("other-7", "other", steps=7, optimizer=CONSTANT | {"lr": 0.02}),
    ]
    whole = [
        write("whole", steps=7, optimizer=CONSTANT),
        write("whole-warming", steps=7, optimizer=LATE),
    ]
    return folder, run_together([*then, *whole]).stderr.splitlines()


def weights(folder):
    return (folder / "model" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "whole"), [("longer", "whole"), ("warming", "whole-warming"), ("epochs", "whole")]
)
def test_an_extended_run_is_the_run_that_would_have_been(runs, name, whole):
    folder, _ = runs
    assert sorted(losses(folder / name)) == list(range(1, 8))
    assert losses(folder / name) == losses(folder / whole)
    assert weights(folder / name) == weights(folder / whole)
    outcome = RunFolder(folder / name).outcome()
    assert (outcome.step, outcome.is_finished) == (7, True)
    claimed, wanted = (json.loads((folder / x / "recipe.json").read_text()) for x in (name, whole))
    total = {"steps": None, "epochs": 0.46} if name == "epochs" else {"steps": 7, "epochs": None}
    assert claimed == wanted | total


def test_it_says_that_it_goes_on(runs):
    folder, lines = runs
    assert f"train: {folder / 'longer'} continues after 4 steps, to 7 instead of 4" in lines


def test_a_schedule_that_depends_on_the_total_is_refused(runs):
    folder, lines = runs
    (line,) = [x for x in lines if str(folder / "falling") in x]
    assert "was started with 4 steps in total, and optimizer.decay cosine sets the" in line
    assert "learning rate by that number: 7 would change 1 of its 4 steps" in line
    assert line.endswith("choose another output, or go back to 4")
    assert json.loads((folder / "falling" / "recipe.json").read_text())["steps"] == 4
    assert RunFolder(folder / "falling").outcome().steps == 4


def test_fewer_steps_than_are_done_are_refused(runs):
    folder, lines = runs
    (line,) = [x for x in lines if str(folder / "shorter") in x]
    assert "has done 6 steps, more than the 3 requested; choose another output, or 6 steps" in line
    assert json.loads((folder / "shorter" / "recipe.json").read_text())["steps"] == 6


def test_other_differences_are_still_another_recipe(runs):
    folder, lines = runs
    (line,) = [x for x in lines if str(folder / "other") in x]
    assert "another recipe (different: optimizer.lr 0.01 → 0.02, steps 4 → 7)" in line
    assert json.loads((folder / "other" / "recipe.json").read_text())["steps"] == 4


def test_a_model_of_fewer_steps_is_not_taken_for_the_finished_one(runs):
    """Killed after its last checkpoint, an extended run still has the model that it had."""
    folder, _ = runs
    finished = weights(folder / "longer")
    shutil.rmtree(folder / "longer" / "model")
    shutil.copytree(folder / "before-model", folder / "longer" / "model")
    shutil.copy(folder / "before-outcome.json", folder / "longer" / "outcome.json")
    assert weights(folder / "longer") != finished
    run_together([str(folder / "longer-7.yaml")])
    assert weights(folder / "longer") == finished


@pytest.mark.parametrize("decay", ["cosine", "linear", "constant"])
def test_steps_whose_rates_a_total_changes_are_counted(decay):
    config = OptimizerConfig(warmup=10, decay=decay)
    assert config.steps_changed(100, 200, done=11) == 0  # the last of them is at the peak
    assert config.steps_changed(100, 200, done=15) == (0 if decay == "constant" else 4)
