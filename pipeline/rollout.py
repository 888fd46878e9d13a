"""A checkpoint's own decodes → trajectory shards and their manifest.

Actors hold the checkpoint and decode clean sequences with settings drawn from a spread. A row is
a look at one decode after a random number of its steps, with its whole past and its target: the
source's x*, or the nearest answer that a checker calls right.

The checkpoint is a frozen snapshot, so within a round the law of the states does not depend on the
weights being trained, and the labels are the oracle's, a function of state and target alone.
Theorem 1 therefore holds on the support of these states, as it does for trajectories from rules.

Kill it anywhere and run it again: it does what is missing, and the bytes are those of an
undisturbed run.

    remask rollout pipeline/recipes/sums_rollout.yaml
    python -m remask.pipeline.rollout RECIPE checkpoint=runs/mine/model run.gpus_per_rollout=1
    ray job submit --working-dir . -- python -m remask.pipeline.rollout RECIPE
"""

import dataclasses
import json
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import polars as pl
import torch

from remask.models import Backbone, load
from remask.models.checkpoints.checkpoint import outline, trained_history
from remask.pipeline import source
from remask.pipeline.dataset import Counts, commit_shard, fill
from remask.pipeline.decodes import decode_examples, make_draws
from remask.pipeline.format.examples import Examples, example_columns
from remask.pipeline.format.manifest import open_manifest
from remask.pipeline.format.rows import encode_moves
from remask.pipeline.moves import Ints
from remask.pipeline.plan import (
    ROLLOUT_STAGE,
    Plan,
    ShardUnit,
    plan_facts,
    shard_units,
    unit_rng,
)
from remask.pipeline.probe import check_length
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.command import main_for
from remask.pipeline.runtime.ending import after_shards
from remask.pipeline.runtime.jobs import run_actors
from remask.pipeline.runtime.progress import Summary
from remask.pipeline.source import open_examples, read_starts
from remask.pipeline.sources.source import Source
from remask.pipeline.trajectory import count_true

NOTHING_WRONG = "no decode has a mistake left, so there is nothing to learn; use harder decoders"


def rollout_shard(
    plan: Plan[RolloutRecipe], num_shards: int, backbone: Backbone, unit: ShardUnit
) -> Counts:
    """Decode, write and commit one shard; return its rows, tokens and skipped records."""
    recipe, spread = plan.recipe, plan.recipe.decoders
    file = open_examples(plan, unit.examples)
    examples = file.decode()
    check_length(backbone, examples)
    rng = unit_rng(plan, ROLLOUT_STAGE, unit.examples, unit.replica)
    decodes = decode_examples(
        backbone,
        examples,
        make_starts(plan, unit, examples),
        spread,
        make_draws(spread, len(examples.lengths), rng, looks=recipe.looks),
        checker=recipe.checker,
        max_segments=recipe.max_segments,
        mixed=recipe.precision == "mixed",
        tokens_per_batch=recipe.run.tokens_per_batch,
    )
    columns = file.columns
    if recipe.checker is not None or recipe.looks > 1:
        repeated = examples.take(np.repeat(np.arange(len(examples.lengths)), recipe.looks))
        examples = dataclasses.replace(repeated, target=decodes.target)
        columns = example_columns(examples)
    data = encode_moves(examples, columns, decodes.moves, spread.horizon)
    num_editable, num_rows = count_true(examples.editable), len(decodes.passes)
    return commit_shard(
        plan,
        unit,
        examples,
        decodes.moves,
        data,
        num_shards=num_shards,
        num_editable=num_editable,
        origin="decodes",
        horizon=spread.horizon,
        decoder=json.dumps(dataclasses.asdict(spread)),
        wrong_share=round(float(decodes.num_wrong.sum() / max(1, num_editable.sum())), 6),
        mean_passes=round(float(decodes.passes.sum() / max(1, num_rows)), 4),
        already_right=round(float(decodes.is_right.sum() / max(1, num_rows)), 6),
        unchecked=int(decodes.is_unchecked.reshape(-1, recipe.looks).any(1).sum()),
        dropped_runs=int(decodes.dropped_runs.sum()),
    )


def make_starts(plan: Plan[RolloutRecipe], unit: ShardUnit, examples: Examples) -> Ints:
    """The tokens that the decodes of a unit start from, [B, N]."""
    target, mask_id = examples.target, examples.vocabulary.mask_id
    given = plan.recipe.start == "given"
    start = read_starts(plan, unit.examples) if given else target.dtype.type(mask_id)
    return np.where(examples.editable, start, target)


def run(recipe: RolloutRecipe) -> Summary:
    """Make the shards that are missing, and close the manifest."""
    check_vocabulary(recipe.checkpoint, recipe.source)
    plan = Plan(*plan_facts(recipe))
    units = rollout_units(plan.recipe)

    def make_shards(missing: list[ShardUnit]) -> Iterator[Counts]:
        return run_actors(
            partial(make_worker, plan, len(units)),
            missing,
            workers=plan.workers,
            num_gpus=recipe.run.gpus_per_rollout,
        )

    def prepare() -> None:
        if recipe.checker is not None:
            recipe.checker.check_machine()
        source.run_plan(plan, list(dict.fromkeys(x.examples for x in units)))

    summary = fill("rollout", plan, units, prepare, make_shards)
    return dataclasses.replace(summary, note=note_on(plan.recipe.output))


def note_on(output: str) -> str:
    """What the user should know about the decodes of a data set, if anything."""
    table = open_manifest(output).filter(pl.col("rows") > 0)
    lowest, unchecked = (
        table.select(pl.col("already_right").min(), pl.col("unchecked").sum()).collect().row(0)
    )
    if unchecked:
        return f"the checker failed on {unchecked:,} decodes, which count as not right"
    return NOTHING_WRONG if lowest == 1.0 else ""


def rollout_units(recipe: RolloutRecipe) -> list[ShardUnit]:
    """The shards that a recipe makes, in order."""
    units = shard_units(recipe)
    if recipe.span is None:
        return units
    files = [x.examples for x in units if x.examples.split == "train" and x.replica == 0]
    if not files:
        raise ValueError("span names training shards, but the source has no training examples")
    first, count = recipe.span
    return [ShardUnit(files[i % len(files)], i // len(files)) for i in range(first, first + count)]


def check_vocabulary(checkpoint: str, source: Source) -> None:
    """Raise ValueError unless the checkpoint has the source's ids and MASK."""
    backbone, vocabulary = outline(checkpoint), source.vocabulary()
    if backbone.mask_id != vocabulary.mask_id or not backbone.fits(vocabulary.size):
        raise ValueError(
            f"checkpoint {checkpoint} has {backbone.vocab_size} ids with MASK "
            f"{backbone.mask_id}, the source {vocabulary.size} with MASK {vocabulary.mask_id}; use "
            "a checkpoint that was trained with the source's tokenizer"
        )


def make_worker(plan: Plan[RolloutRecipe], num_shards: int) -> Callable[[ShardUnit], Counts]:
    """Load the checkpoint once and return a function that makes a shard."""
    checkpoint, checker = plan.recipe.checkpoint, plan.recipe.checker
    if checker is not None:
        checker.check_machine()  # a worker's machine may lack what the driver's has
    on_gpu = torch.cuda.is_available() and plan.recipe.run.gpus_per_rollout > 0
    backbone = load(
        checkpoint, device="cuda" if on_gpu else "cpu", history=trained_history(checkpoint)
    )
    return partial(rollout_shard, plan, num_shards, backbone)


def main(argv: list[str] | None = None) -> None:
    main_for(
        "rollout",
        __doc__,
        run,
        rollout_units,
        argv,
        RolloutRecipe,
        advise=lambda recipe, name: after_shards(recipe.output),
    )


if __name__ == "__main__":
    main()
