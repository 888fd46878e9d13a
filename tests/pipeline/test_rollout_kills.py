"""SIGKILL to `remask rollout` and its workers: the bytes are those of an undisturbed run."""

import contextlib
import os
import subprocess
import sys

import psutil
import pytest
import yaml

from remask.pipeline import rollout
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.recipes import load_recipe
from tests.pipeline.test_rollout import checkpoint, shards_of  # noqa: F401
from tests.places import ROOT
from tests.training.runs import wait_for

SHARDS = 40


@pytest.fixture
def recipe(tmp_path, checkpoint):  # noqa: F811
    """Path of a recipe of many small shards."""
    values = {
        "output": str(tmp_path / "data"),
        "checkpoint": checkpoint,
        "source": {"kind": "sudoku", "side": 4, "train": 10 * SHARDS, "held_out": 0},
        "decoders": {"steps": [2, 5], "margin": [0.0, -3.0], "temperature": [0.0, 0.7]},
        "looks": 2,
        "examples_per_shard": 10,
        "run": {"workers": 0},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "recipe.yaml"


def undisturbed(recipe, folder):
    """What a run that nobody disturbs leaves."""
    rollout.run(load_recipe(RolloutRecipe, recipe, [f"output={folder}"]))
    return shards_of(folder)


@contextlib.contextmanager
def command(recipe, workers):
    """`remask rollout`, which ends with the block at the latest."""
    driver = subprocess.Popen(
        [sys.executable, "-m", "remask.infra.cli", "rollout", recipe, f"run.workers={workers}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with driver:
        try:
            yield driver
        finally:
            driver.kill()


def num_rows(folder):
    """Committed shards of a data set that is being made."""
    return len(list((folder / "rows").glob("*.json")))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_driver_is_made_up_for(recipe, tmp_path, workers):
    with command(recipe, workers) as driver:
        wait_for(lambda: num_rows(tmp_path / "data") > 0, driver)
        below = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        driver.wait()
        for process in below:  # Ray ends by itself, but not at once
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    made = num_rows(tmp_path / "data")
    assert 0 < made < SHARDS
    summary = rollout.run(load_recipe(RolloutRecipe, recipe, []))
    assert summary.new_units == SHARDS - made
    assert shards_of(tmp_path / "data") == undisturbed(recipe, tmp_path / "calm")


@pytest.mark.slow
def test_a_killed_worker_is_made_up_for(recipe, tmp_path):
    with command(recipe, 2) as driver:
        wait_for(lambda: num_rows(tmp_path / "data") > 0, driver)
        workers_of(driver)[0].kill()
        _, stderr = driver.communicate()
        assert driver.returncode == 0, stderr
    assert shards_of(tmp_path / "data") == undisturbed(recipe, tmp_path / "calm")


def workers_of(driver):
    """The Ray workers that hold a checkpoint."""
    workers = []
    for process in psutil.Process(driver.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, IndexError):
            title = process.cmdline()[0]
            if title.startswith("ray::") and "IDLE" not in title and not title.endswith("Agent"):
                workers.append(process)
    return workers
