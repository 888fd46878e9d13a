"""Rounds: the model's own decodes as data, made anew while it learns.

Training is cut into rounds of equal length. The rows of a round are decodes by the model as it was
when the round began, so that it learns from its own mistakes in its own past:

    round   0                  1                  2
    data    start model's      model 1's          model 2's decodes
    steps   0 .. every-1       .. 2·every-1       .. 3·every-1
            └─ model 1         └─ model 2

With `lag: 1` a round takes the model of the round before, and is decoded while that one is trained
on. Within a round the snapshot is fixed, so the law of the states does not depend on the weights
being trained, and every step follows from the recipe and its number.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from remask.models.config import from_mapping
from remask.models.ranges import Range, check_fields
from remask.pipeline.rollout_recipe import RolloutRecipe

DERIVED = ("output", "checkpoint", "cache", "span")
"""Keys of a rollout recipe that follow from the run and the round."""


@dataclass(frozen=True, kw_only=True)
class RoundsConfig:
    """How a run's own decodes are made and used."""

    rollout: dict[str, Any]
    """Keys of a rollout recipe: source, decoders, targets, examples_per_shard and so on. Its output
    and checkpoint follow from the run."""
    share: Annotated[float, Range("(0, 1]")] = 0.5
    """Share of every batch that comes from the round's decodes; the rest comes from `shards`."""
    every: Annotated[int, Range("[1, inf)")] = 100
    """Steps of a round."""
    shards: Annotated[int, Range("[1, inf)")] = 1
    """Number of shards that a round decodes: the next ones of the source's training split, from the
    first again after the last."""
    lag: Literal[0, 1] = 0
    """0 decodes with the model as it is when the round begins, and the trainer waits meanwhile; 1
    with that of the round before, while the trainer is busy with it."""

    def __post_init__(self) -> None:
        check_fields(self, "rounds.")
        derived = sorted({*DERIVED} & {*self.rollout})
        if derived:
            raise ValueError(f"rounds.rollout: {derived} follow from the run; leave them out")
        self.rollout_recipe(".", "model", 0)  # checks the keys

    @property
    def content(self) -> dict[str, Any]:
        """The settings that the result depends on."""
        values = dataclasses.asdict(self)
        rollout = self.rollout_recipe(".", "model", 0).content
        return values | {"rollout": {k: x for k, x in rollout.items() if k not in DERIVED}}

    @property
    def horizon(self) -> int:
        """T of the decodes."""
        return self.rollout_recipe(".", "model", 0).decoders.horizon

    def round_of(self, step: int) -> int:
        """The round that a step belongs to."""
        return step // self.every

    def steps_of(self, number: int) -> range:
        """The steps of a round."""
        return range(number * self.every, (number + 1) * self.every)

    def model_of(self, number: int) -> int:
        """The round whose first model decodes a round's data; 0 is the start model."""
        return max(0, number - self.lag)

    def rollout_recipe(self, output: str, checkpoint: str, number: int) -> RolloutRecipe:
        """The recipe of a round's data set.

        Args:
            output: Folder of all rounds.
            checkpoint: The model that decodes.
            number: Number of the round.
        """
        derived = {
            "output": str(data_folder(output, number)),
            "checkpoint": checkpoint,
            "cache": str(Path(output, "examples")),
            "span": [number * self.shards, self.shards],
        }
        return from_mapping(RolloutRecipe, self.rollout | derived, "rounds.rollout")


def data_folder(rounds: str | Path, number: int) -> Path:
    """The data set of a round."""
    return Path(rounds, f"{number:05d}", "data")


def model_folder(rounds: str | Path, number: int) -> Path:
    """The model as it is when a round begins."""
    return Path(rounds, f"{number:05d}", "model")
