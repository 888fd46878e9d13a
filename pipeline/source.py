"""Source → examples: clean sequences with their editable positions, as Parquet.

remask source pipeline/recipes/sudoku.yaml
python -m pipeline.source pipeline/recipes/sudoku.yaml source.train=100000
"""

import zlib
from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.command import Summary, main_for
from pipeline.jobs import run_tasks
from pipeline.progress import Meter
from pipeline.recipe import BuildRecipe
from pipeline.rows import Examples, decode_examples, encode_examples
from pipeline.storage import Storage

SOURCE_STAGE, PROBE_STAGE, BUILD_STAGE = range(3)


@dataclass(frozen=True)
class Unit:
    """One file of examples: records first .. first+count-1 of a split."""

    split: str
    index: int
    first: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.split}-{self.index:05d}"


def example_units(recipe: BuildRecipe) -> list[Unit]:
    """The files the source stage makes, in order."""
    size = recipe.examples_per_shard
    return [
        Unit(split, index, first, min(size, total - first))
        for split, total in recipe.source.num_records().items()
        for index, first in enumerate(range(0, total, size))
    ]


def make_examples(recipe: BuildRecipe, unit: Unit) -> tuple[int, int]:
    """Write one unit's examples; return its rows and tokens."""
    rng = unit_rng(recipe, SOURCE_STAGE, unit)
    examples = recipe.source.examples(unit.split, unit.first, unit.count, rng)
    examples_storage(recipe).write(f"{unit.name}.parquet", encode_examples(examples))
    return len(examples.example_ids), int(examples.lengths.sum())


def read_examples(recipe: BuildRecipe, unit: Unit) -> Examples:
    """What `make_examples` wrote."""
    storage, name = examples_storage(recipe), f"{unit.name}.parquet"
    return decode_examples(storage.read(name), storage.path(name))


def examples_storage(recipe: BuildRecipe) -> Storage:
    return Storage(f"{recipe.cache or recipe.output}/examples/{recipe.source_key}")


def unit_rng(recipe: BuildRecipe, stage: int, unit: Unit, *more: int) -> np.random.Generator:
    """A unit's own randomness: the same whoever computes it, and when."""
    return np.random.default_rng(
        [recipe.seed, stage, zlib.crc32(unit.split.encode()), unit.index, *more]
    )


def run(recipe: BuildRecipe) -> Summary:
    """Make the examples that are missing."""
    storage, units = examples_storage(recipe), example_units(recipe)
    storage.sweep("")
    there = storage.names("")
    todo = [unit for unit in units if f"{unit.name}.parquet" not in there]
    with Meter("source", len(units), len(units) - len(todo)) as meter:
        for rows, tokens in run_tasks(
            partial(make_examples, recipe), todo, workers=workers_for(recipe, storage)
        ):
            meter.add(rows, tokens)
    return Summary(
        "source", len(units), len(todo), meter.rows, meter.tokens, meter.seconds, storage.uri
    )


def workers_for(recipe: BuildRecipe, *storages: Storage) -> int | None:
    """In-process where other processes could not see the files."""
    return 0 if any(storage.is_private for storage in storages) else recipe.run.workers


def main(argv: list[str] | None = None) -> None:
    main_for("source", __doc__, run, example_units, argv)


if __name__ == "__main__":
    main()
