"""The plan of a build: made once by the driver and shipped to the workers.

Ray pickles a class by its module's name, so what is shipped lives here and not in a stage's module,
which `python -m` runs under the name `__main__`.
"""

import dataclasses
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from remask.models import fingerprint
from remask.pipeline.format.parquet import SCHEMA_VERSION
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.storage import Storage, absolute, check_kept

SOURCE_STAGE, PROBE_STAGE, BUILD_STAGE = range(3)
MAX_SHARDS = 1_000_000
"""Limit on the shards of a build, since the driver holds a list of them."""


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
class BuildPlan:
    """A recipe, and the hashes of everything that its output depends on."""

    recipe: BuildRecipe
    tokenizer: str
    """Hash of the tokenizer."""
    data: str | None
    """Hash of the data that the source reads; None if it reads none."""
    backbone: str | None
    """Fingerprint of the probed checkpoint; None if nothing is probed."""

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
    def proposals_key(self) -> str:
        """Names the proposals: what the probe stage depends on."""
        config = self.recipe.proposal
        masked = config.mask_rate if config.mode == "masked" else None
        return digest([self.source_key, self.backbone, config.k, config.mode, masked])

    @property
    def examples(self) -> Storage:
        return Storage(f"{self.recipe.cache or self.recipe.output}/examples/{self.source_key}")

    @property
    def proposals(self) -> Storage:
        return Storage(f"{self.recipe.cache or self.recipe.output}/proposals/{self.proposals_key}")

    @property
    def workers(self) -> int | None:
        """The recipe's number of workers; 0 where other processes could not see the files."""
        uris = (self.recipe.output, self.recipe.cache or self.recipe.output)
        return 0 if any(Storage(uri).is_private for uri in uris) else self.recipe.run.workers


def make_plan(recipe: BuildRecipe) -> BuildPlan:
    """Hash the data, tokenizer and checkpoint that a recipe names, and make its paths absolute."""
    check_kept("output", recipe.output)
    recipe = dataclasses.replace(
        recipe,
        output=absolute(recipe.output),
        cache=absolute(recipe.cache),
        source=recipe.source.with_absolute_paths(),
        proposal=dataclasses.replace(recipe.proposal, backbone=absolute(recipe.proposal.backbone)),
    )
    backbone = recipe.proposal.backbone
    return BuildPlan(
        recipe,
        tokenizer=recipe.source.tokenizer_hash(),
        data=recipe.source.data_hash(),
        backbone=None if backbone is None else fingerprint(backbone),
    )


def example_units(recipe: BuildRecipe) -> list[Unit]:
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


def shard_units(recipe: BuildRecipe) -> list[ShardUnit]:
    """The shards of a build, in order; held-out examples have one replica."""
    return [
        ShardUnit(unit, replica)
        for unit in example_units(recipe)
        for replica in range(recipe.replicas if unit.split == "train" else 1)
    ]


def unit_rng(plan: BuildPlan, stage: int, unit: Unit, *more: int) -> np.random.Generator:
    """A unit's own randomness: the same whoever computes it, and when."""
    split = zlib.crc32(unit.split.encode())
    return np.random.default_rng([plan.recipe.seed, stage, split, unit.index, *more])
