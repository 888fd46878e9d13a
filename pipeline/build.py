"""Proposals → trajectory shards and their manifest.

Runs the earlier stages first where their output is missing. Kill it anywhere and run it again: it
does what is missing, and the bytes are those of an undisturbed run.

    remask build pipeline/recipes/sudoku.yaml
    python -m remask.pipeline.build pipeline/recipes/sudoku.yaml output=s3://bucket/data replicas=4
    ray job submit --working-dir . -- python -m remask.pipeline.build pipeline/recipes/sudoku.yaml
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from remask.pipeline import probe, source
from remask.pipeline.dataset import Counts, commit_shard, fill
from remask.pipeline.format.examples import Examples
from remask.pipeline.format.rows import encode_moves
from remask.pipeline.plan import (
    BUILD_STAGE,
    BuildPlan,
    ShardUnit,
    Unit,
    make_plan,
    shard_units,
    unit_rng,
)
from remask.pipeline.proposal import Proposal, Uniform
from remask.pipeline.proposal_kinds import PROPOSALS, ProposalInputs
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.command import main_for
from remask.pipeline.runtime.ending import after_shards
from remask.pipeline.runtime.jobs import run_tasks
from remask.pipeline.runtime.progress import Summary
from remask.pipeline.source import open_examples, read_starts
from remask.pipeline.trajectory import count_true, sample_moves


def build_shard(plan: BuildPlan, num_shards: int, unit: ShardUnit) -> Counts:
    """Draw, write and commit one shard; return its rows, tokens and skipped records."""
    recipe = plan.recipe
    file = open_examples(plan, unit.examples)
    examples = file.decode()
    proposal = make_proposal(plan, unit.examples, examples)
    rng = unit_rng(plan, BUILD_STAGE, unit.examples, unit.replica)
    target, editable, mask_id = examples.target, examples.editable, examples.vocabulary.mask_id
    moves = sample_moves(target, editable, proposal, recipe.trajectories, rng, mask_id=mask_id)
    data = encode_moves(examples, file.columns, moves, recipe.trajectories.horizon)

    distances = distance_sums(proposal, examples)
    num_editable = count_true(editable)
    is_probed = recipe.proposal.kind == "top_k"
    return commit_shard(
        plan,
        unit,
        examples,
        moves,
        data,
        num_shards=num_shards,
        num_editable=num_editable,
        origin="rules",
        proposal=recipe.proposal.kind,
        k=recipe.proposal.k if is_probed else None,
        probe_mode=recipe.proposal.mode if is_probed else None,
        horizon=recipe.trajectories.horizon,
        mean_tv=round(float(distances.sum() / max(1, num_editable.sum())), 6),
        shift=round(float(np.mean(num_editable * distances)), 4) if len(target) else 0.0,
    )


def make_proposal(plan: BuildPlan, unit: Unit, examples: Examples) -> Proposal:
    """The proposal ν of the recipe's kind, for one file of examples."""
    inputs = ProposalInputs(
        examples,
        read_starts=partial(read_starts, plan, unit),
        read_guesses=partial(probe.read_proposals, plan, unit, examples),
    )
    return PROPOSALS[plan.recipe.proposal.kind].make(inputs)


def distance_sums(proposal: Proposal, examples: Examples) -> np.ndarray:
    """Σ over each row's editable positions of the proposal's distance to uniform, [B]."""
    if isinstance(proposal, Uniform):
        return np.zeros(len(examples.target))
    where = examples.editable & proposal.supports(examples.target)
    row, position = np.nonzero(where)
    distance = proposal.distance(examples.target[row, position], row, position)
    return np.bincount(row, weights=distance, minlength=len(where))


def run(recipe: BuildRecipe) -> Summary:
    """Build the shards that are missing, and close the manifest."""
    plan = make_plan(recipe)
    units = shard_units(plan.recipe)

    def prepare() -> None:
        source.run_plan(plan)
        if plan.recipe.proposal.kind == "top_k":
            probe.run(plan.recipe, plan)

    def make_shards(missing: list[ShardUnit]) -> Iterator[Counts]:
        return run_tasks(partial(build_shard, plan, len(units)), missing, workers=plan.workers)

    return fill("build", plan, units, prepare, make_shards)


def main(argv: list[str] | None = None) -> None:
    main_for(
        "build",
        __doc__,
        run,
        shard_units,
        argv,
        advise=lambda recipe, name: after_shards(recipe.output),
    )


if __name__ == "__main__":
    main()
