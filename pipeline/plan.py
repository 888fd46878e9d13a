"""The plan of a data set: made once by the driver and shipped to the workers.

Ray pickles a class by its module's name, so what is shipped lives here and not in a stage's module,
which `python -m` runs under the name `__main__`.
"""

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from remask.models import fingerprint
from remask.pipeline.format.parquet import SCHEMA_VERSION
from remask.pipeline.recipe import BuildRecipe, ShardsRecipe
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.storage import Storage, check_kept

SOURCE_STAGE, PROBE_STAGE, BUILD_STAGE, ROLLOUT_STAGE = range(4)
MAX_SHARDS = 1_000_000
"""Limit on the shards of a data set, since the driver holds a list of them."""
Recipe = TypeVar("Recipe", bound=ShardsRecipe)


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


@dataclass(frozen=True)
class ShardUnit:
    """One shard: a replica of one unit's examples."""

    examples: Unit
    replica: int

    @property
    def name(self) -> str:
        return f"{self.examples.name}-{self.replica:02d}"


@dataclass(frozen=True)
class Plan(Generic[Recipe]):
    """A recipe, and the hashes of everything that its output depends on."""

    recipe: Recipe
    tokenizer: str
    """Hash of the tokenizer."""
    data: str | None
    """Hash of the data that the source reads; None if it reads none."""
    backbone: str | None
    """Fingerprint of the checkpoint that is probed or decoded; None if there is none."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that the output depends on."""
        facts = {"tokenizer": self.tokenizer, "data": self.data, "backbone": self.backbone}
        return self.recipe.content | {"inputs": facts, "schema": SCHEMA_VERSION}

    @cached_property
    def source_key(self) -> str:
        """Names the examples: what the source stage depends on."""
        content = self.content
        names = ("source", "seed", "examples_per_shard", "schema")
        return digest([{name: content[name] for name in names}, self.tokenizer, self.data])

    @property
    def examples(self) -> Storage:
        return Storage(f"{self.recipe.cache or self.recipe.output}/examples/{self.source_key}")

    @property
    def workers(self) -> int | None:
        """The recipe's number of workers; 0 where other processes could not see the files."""
        uris = (self.recipe.output, self.recipe.cache or self.recipe.output)
        return 0 if any(Storage(uri).is_private for uri in uris) else self.recipe.run.workers


@dataclass(frozen=True)
class BuildPlan(Plan[BuildRecipe]):
    """The plan of a build, whose proposals may come from a frozen backbone."""

    @property
    def proposals_key(self) -> str:
        """Names the proposals: what the probe stage depends on."""
        config = self.recipe.proposal
        masked = config.mask_rate if config.mode == "masked" else None
        return digest([self.source_key, self.backbone, config.k, config.mode, masked])

    @property
    def proposals(self) -> Storage:
        return Storage(f"{self.recipe.cache or self.recipe.output}/proposals/{self.proposals_key}")


def make_plan(recipe: BuildRecipe) -> BuildPlan:
    """The plan of a build."""
    return BuildPlan(*plan_facts(recipe))


def plan_facts(recipe: Recipe) -> tuple[Recipe, str, str | None, str | None]:
    """The fields of a plan: the recipe with absolute paths, and the hashes of the tokenizer, the
    data and the checkpoint that it names."""
    check_kept("output", recipe.output)
    recipe = recipe.with_absolute_paths()
    source, backbone = recipe.source, recipe.backbone
    key = None if backbone is None else fingerprint(backbone)
    return recipe, source.tokenizer_hash(), source.data_hash(), key


def example_units(recipe: ShardsRecipe) -> list[Unit]:
    """The files the source stage makes, in order."""
    size, records = recipe.examples_per_shard, recipe.source.num_records()
    num_shards = sum(-(-total // size) for total in records.values()) * recipe.replicas
    if num_shards > MAX_SHARDS:
        raise ValueError(
            f"source has {sum(records.values()):,} records, which in files of {size:,} and "
            f"{recipe.replicas} replicas are {num_shards:,} shards, more than {MAX_SHARDS:,}; "
            "raise examples_per_shard"
        )
    return [
        Unit(split, index, first, min(size, total - first))
        for split, total in records.items()
        for index, first in enumerate(range(0, total, size))
    ]


def shard_units(recipe: ShardsRecipe) -> list[ShardUnit]:
    """The shards of a data set, in order; held-out examples have one replica."""
    return [
        ShardUnit(unit, replica)
        for unit in example_units(recipe)
        for replica in range(recipe.replicas if unit.split == "train" else 1)
    ]


def unit_rng(plan: Plan[Any], stage: int, unit: Unit, *more: int) -> np.random.Generator:
    """A unit's own randomness: the same whoever computes it, and when."""
    split = zlib.crc32(unit.split.encode())
    return np.random.default_rng([plan.recipe.seed, stage, split, unit.index, *more])
