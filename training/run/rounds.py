"""How the trainer and the rollouts of a run meet: in the folders of its rounds.

    OUTPUT/rounds/00003/model    the model as it is when round 3 begins; the trainer puts it there
    OUTPUT/rounds/00003/data     the round's decodes; complete once their manifest is there

Each appears complete or not at all. So either side may be killed and started again, on the same
machine or on another one that shares the file system.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch

from remask.models.checkpoints.folder import flush
from remask.pipeline.format.manifest import MANIFEST
from remask.pipeline.runtime.terminal import say
from remask.training.recipe import TrainRecipe
from remask.training.rounds import data_folder, model_folder
from remask.training.run.folder import RunFolder
from remask.training.world import TrainingError, World

POLL_S = 0.1
HINT_AFTER_S = 60
"""Seconds without data after which a rank says what it waits for."""


def await_round(
    recipe: TrainRecipe,
    number: int,
    folder: RunFolder,
    world: World,
    wants_stop: Callable[[], bool],
) -> bool:
    """Publish the model that a round begins with, and wait until the round's data is there.

    All ranks must call this.

    Args:
        recipe: What is trained.
        number: Number of the round.
        folder: The run's folder.
        world: The ranks.
        wants_stop: Whether this rank was asked to stop.

    Returns:
        False if a rank was asked to stop before the data was there.

    Raises:
        TrainingError: The data is not there and cannot be made, since its model is gone.
    """
    if world.is_first and number:
        publish_model(folder, recipe, number)
    began = time.monotonic()
    while True:
        own = torch.tensor([has_data(recipe, number), wants_stop()], dtype=torch.float64)
        num_ready, num_requests = world.total(own).tolist()
        if num_requests or num_ready == world.size:
            return not num_requests
        if world.is_first:
            _check_model(recipe, number)
            if time.monotonic() - began > HINT_AFTER_S:
                began = float("inf")
                say(
                    f"train: waiting for the decodes of round {number}; `remask train` makes them, "
                    "or `python -m remask.training.round_rollouts RECIPE` beside this launcher",
                    to_stderr=True,
                )
        time.sleep(POLL_S)


def has_data(recipe: TrainRecipe, number: int) -> bool:
    """Is the data set of a round complete?"""
    return (data_folder(recipe.rounds_folder, number) / MANIFEST).exists()


def publish_model(folder: RunFolder, recipe: TrainRecipe, number: int) -> None:
    """Copy the model of the checkpoint at a round's first step to the round's folder.

    Does nothing if it is there, or if the run is past that step.
    """
    target = model_folder(recipe.rounds_folder, number)
    first = recipe.rounds.steps_of(number).start if recipe.rounds else 0
    newest = folder.newest()
    if target.exists() or newest is None or newest.state.step != first:
        return
    partial = target.with_name(f".{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(newest.path / "model", partial)
    for path in (*partial.rglob("*"), partial):
        flush(path)
    partial.rename(target)
    flush(target.parent)


def _check_model(recipe: TrainRecipe, number: int) -> None:
    """Raise TrainingError if nobody can make a round's data: its model is gone."""
    checkpoint = Path(recipe.round_recipe(number).checkpoint)
    if recipe.rounds and recipe.rounds.model_of(number) and not checkpoint.is_dir():
        raise TrainingError(
            f"round {number} has no data, and {checkpoint}, whose decodes it needs, is gone; "
            "restore it, or choose another output to start again"
        )
