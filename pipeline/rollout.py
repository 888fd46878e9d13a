"""A checkpoint's own decodes → trajectory shards and their manifest.

Actors hold the checkpoint and decode clean sequences with settings drawn from a spread. A row is
one decode, looked at after a random number of its steps, with its whole past and the target x*.

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
from remask.pipeline.format.examples import Examples
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
    num_rows = len(examples.lengths)
    decodes = decode_examples(
        backbone,
        examples,
        make_starts(plan, unit, examples),
        spread,
        make_draws(spread, num_rows, rng),
        max_segments=recipe.max_segments,
        tokens_per_batch=recipe.run.tokens_per_batch,
    )
    data = encode_moves(examples, file.columns, decodes.moves, spread.horizon)
    num_editable = count_true(examples.editable)
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
    num_shards = len(shard_units(plan.recipe))

    def make_shards(units: list[ShardUnit]) -> Iterator[Counts]:
        return run_actors(
            partial(make_worker, plan, num_shards),
            units,
            workers=plan.workers,
            num_gpus=recipe.run.gpus_per_rollout,
        )

    summary = fill("rollout", plan, partial(source.run_plan, plan), make_shards)
    share = pl.col("already_right").filter(pl.col("rows") > 0).min()
    lowest = open_manifest(plan.recipe.output).select(share).collect().item()
    return dataclasses.replace(summary, note=NOTHING_WRONG if lowest == 1.0 else "")


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
    checkpoint = plan.recipe.checkpoint
    on_gpu = torch.cuda.is_available() and plan.recipe.run.gpus_per_rollout > 0
    backbone = load(
        checkpoint, device="cuda" if on_gpu else "cpu", history=trained_history(checkpoint)
    )
    return partial(rollout_shard, plan, num_shards, backbone)


def main(argv: list[str] | None = None) -> None:
    main_for("rollout", __doc__, run, shard_units, argv, kind=RolloutRecipe)


if __name__ == "__main__":
    main()
