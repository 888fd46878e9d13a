"""Source → examples: clean sequences with their editable positions, as Parquet.

remask source pipeline/recipes/sudoku.yaml
python -m pipeline.source pipeline/recipes/sudoku.yaml source.train=100000
"""

import dataclasses
import sys
import zlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from models import fingerprint
from pipeline.command import main_for
from pipeline.jobs import run_tasks
from pipeline.parquet import SCHEMA_VERSION
from pipeline.progress import Meter, Summary
from pipeline.recipe import BuildRecipe, digest
from pipeline.rows import ExampleFile, Examples, encode_examples
from pipeline.storage import Storage, absolute, check_kept
from pipeline.trajectory import Ints

SOURCE_STAGE, PROBE_STAGE, BUILD_STAGE = range(3)
PATHS = ("file", "data", "folder", "images", "tokenizer")
"""Settings of sources that name a place."""
LEFT_OUT, UNCHANGED = ".left_out.txt", ".unchanged.txt"
"""Ends the name of a unit's list of what could not be used, and of edits of nothing."""


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
class Plan:
    """A recipe and what follows from it: worked out once by the driver, shipped to the workers."""

    recipe: BuildRecipe
    tokenizer: str
    """Hash of the tokenizer."""
    data: str | None
    """Hash of the data the source reads, if it reads any."""
    backbone: str | None
    """Fingerprint of the probed checkpoint, if there is one."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """All that the output depends on."""
        facts = {"tokenizer": self.tokenizer, "data": self.data, "backbone": self.backbone}
        content = self.recipe.content
        content["source"] = without_paths(content["source"])
        return content | {"found": facts, "schema": SCHEMA_VERSION}

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
        """As the recipe says, but in-process where other processes could not see the files."""
        uris = (self.recipe.output, self.recipe.cache or self.recipe.output)
        return 0 if any(Storage(uri).is_private for uri in uris) else self.recipe.run.workers


def make_plan(recipe: BuildRecipe) -> Plan:
    """Look at what the recipe names: data, tokenizer, checkpoint; and make its paths absolute."""
    check_kept("output", recipe.output)
    recipe = dataclasses.replace(
        recipe,
        output=absolute(recipe.output),
        cache=absolute(recipe.cache),
        source=recipe.source.with_absolute_paths(),
        proposal=dataclasses.replace(recipe.proposal, backbone=absolute(recipe.proposal.backbone)),
    )
    backbone = recipe.proposal.backbone
    return Plan(
        recipe,
        tokenizer=recipe.source.tokenizer_hash(),
        data=recipe.source.data_hash(),
        backbone=None if backbone is None else fingerprint(backbone),
    )


def example_units(recipe: BuildRecipe) -> list[Unit]:
    """The files the source stage makes, in order."""
    size = recipe.examples_per_shard
    return [
        Unit(split, index, first, min(size, total - first))
        for split, total in recipe.source.num_records().items()
        for index, first in enumerate(range(0, total, size))
    ]


def make_examples(plan: Plan, unit: Unit) -> tuple[int, int, int, int]:
    """Write one unit's examples; return its rows, tokens, skipped records and edits of nothing."""
    rng = unit_rng(plan, SOURCE_STAGE, unit)
    examples = plan.recipe.source.examples(unit.split, unit.first, unit.count, rng)
    for ending, lines in ((LEFT_OUT, examples.left_out), (UNCHANGED, examples.unchanged)):
        if lines:
            plan.examples.write(f"{unit.name}{ending}", "".join(f"{x}\n" for x in lines).encode())
    if examples.starts is not None:
        starts = dataclasses.replace(examples, target=examples.starts)
        plan.examples.write(_starts_name(unit), encode_examples(starts))
    plan.examples.write(f"{unit.name}.parquet", encode_examples(examples))  # last: it says "done"
    tokens = int(examples.lengths.sum())
    return len(examples.example_ids), tokens, examples.num_skipped, len(examples.unchanged)


def open_examples(plan: Plan, unit: Unit) -> ExampleFile:
    """The file that `make_examples` wrote."""
    storage, name = plan.examples, f"{unit.name}.parquet"
    return ExampleFile(storage.read(name), storage.path(name))


def read_examples(plan: Plan, unit: Unit) -> Examples:
    """What `make_examples` wrote."""
    return open_examples(plan, unit).decode()


def read_starts(plan: Plan, unit: Unit) -> Ints:
    """What a unit's rows should be revised from, [B, N]."""
    name = _starts_name(unit)
    return ExampleFile(plan.examples.read(name), plan.examples.path(name)).decode().target


def unit_rng(plan: Plan, stage: int, unit: Unit, *more: int) -> np.random.Generator:
    """A unit's own randomness: the same whoever computes it, and when."""
    split = zlib.crc32(unit.split.encode())
    return np.random.default_rng([plan.recipe.seed, stage, split, unit.index, *more])


def missing(storage: Storage, units: list[Unit]) -> list[Unit]:
    """The units whose file is not there yet; what killed writers left is removed."""
    storage.sweep("")
    there = storage.names("")
    return [unit for unit in units if f"{unit.name}.parquet" not in there]


def run(recipe: BuildRecipe, plan: Plan | None = None) -> Summary:
    """Make the examples that are missing."""
    plan = plan or make_plan(recipe)
    units = example_units(plan.recipe)
    todo = missing(plan.examples, units)
    unchanged = 0
    with Meter("source", len(units), len(units) - len(todo)) as meter:
        for *counts, same in run_tasks(
            partial(make_examples, plan),
            todo,
            workers=plan.workers,
            num_gpus=plan.recipe.run.gpus_per_source,
        ):
            meter.add(*counts)
            unchanged += same
    plan.examples.sweep("")
    if unchanged:
        where = plan.examples.path(f"*{UNCHANGED}")
        print(f"source: {unchanged:,} edits of nothing are kept; {where}", file=sys.stderr)
    if meter.rows == 0 and len(todo) == len(units):
        plan.examples.remove(f"{unit.name}.parquet" for unit in units)
        why = _first_reason(plan) or "raise source.max_length or mend the templates"
        raise ValueError(
            f"the source gave no example: all {meter.skipped} records were left out, for they "
            f"cannot be read, are too long, have nothing to answer, or hold the mask token; {why}"
        )
    return meter.summary(len(todo), plan.examples.uri)


def _first_reason(plan: Plan) -> str | None:
    """Why the first record was left out, of sources that say so."""
    for name in sorted(plan.examples.names("")):
        if name.endswith(LEFT_OUT):
            first = plan.examples.read(name).decode().partition("\n")[0]
            return f"the first: {first}; see {plan.examples.path(name)}"
    return None


def _starts_name(unit: Unit) -> str:
    return f"{unit.name}.starts.parquet"


def without_paths(values: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that say where something is: what it holds counts."""
    return {
        key: without_paths(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in PATHS
    }


def main(argv: list[str] | None = None) -> None:
    main_for("source", __doc__, run, example_units, argv)


if __name__ == "__main__":
    main()
