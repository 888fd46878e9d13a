"""Proposals → trajectory shards and their manifest.

Runs the earlier stages first where their output is missing. Kill it anywhere and run it again: it
does what is missing, and the bytes are those of an undisturbed run.

    remask build pipeline/recipes/sudoku.yaml
    python -m remask.pipeline.build pipeline/recipes/sudoku.yaml output=s3://bucket/data replicas=4
    ray job submit --working-dir . -- python -m remask.pipeline.build pipeline/recipes/sudoku.yaml
"""

import contextlib
import hashlib
from functools import partial
from typing import Any

import numpy as np

from remask.pipeline import probe, source
from remask.pipeline.format import manifest
from remask.pipeline.format.examples import Examples
from remask.pipeline.format.parquet import SCHEMA_VERSION
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
from remask.pipeline.runtime.jobs import ray_session, run_tasks
from remask.pipeline.runtime.lease import Lease, held, is_free
from remask.pipeline.runtime.progress import Meter, Summary
from remask.pipeline.runtime.provenance import RECIPE, check_claim, claim
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.source import open_examples, read_starts
from remask.pipeline.trajectory import count_true, sample_moves


def build_shard(plan: BuildPlan, num_shards: int, unit: ShardUnit) -> tuple[int, int, int]:
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
    storage, path = Storage(recipe.output), f"{manifest.SHARDS}/{unit.name}.parquet"
    row: dict[str, Any] = {
        "shard": unit.name,
        "path": path,
        "split": unit.examples.split,
        "replica": unit.replica,
        "schema_version": SCHEMA_VERSION,
        "recipe": digest(plan.content),
        "source": plan.source_key,
        "backbone": plan.backbone,
        "tokenizer": plan.tokenizer,
        "seed": recipe.seed,
        "proposal": recipe.proposal.kind,
        "k": recipe.proposal.k if recipe.proposal.kind == "top_k" else None,
        "probe_mode": recipe.proposal.mode if recipe.proposal.kind == "top_k" else None,
        "horizon": recipe.trajectories.horizon,
        "segments": len(moves.ends) + 1,
        "vocab_size": examples.vocabulary.size,
        "mask_id": examples.vocabulary.mask_id,
        "rows": len(num_editable),
        "skipped": examples.num_skipped,
        "tokens": int(examples.lengths.sum()),
        "longest": int(examples.lengths.max(initial=0)),
        "editable": int(num_editable.sum()),
        **moves.rule_counts(target, editable, mask_id),
        "wrong_segments": moves.num_wrong(target, mask_id),
        "mean_tv": round(float(distances.sum() / max(1, num_editable.sum())), 6),
        "shift": round(float(np.mean(num_editable * distances)), 4) if len(target) else 0.0,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "num_shards": num_shards,
    }
    storage.write(path, data, flush_folder=False)  # its manifest row commits it
    manifest.commit(storage, row)
    return row["rows"], row["tokens"], row["skipped"]


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
    storage, num_shards = Storage(plan.recipe.output), len(shard_units(plan.recipe))
    has_recipe = storage.exists(RECIPE)
    if has_recipe and is_free(storage) and manifest.is_closed(storage, num_shards):
        # There is nothing to write, so rights to read are enough.
        check_claim(storage, plan.content)
        return Meter("build", num_shards, num_shards).summary(0, storage.path(manifest.MANIFEST))
    with held(storage) as lease:
        if not has_recipe:  # it may have been lost
            manifest.check_recipe(storage, digest(plan.content))
        claim(storage, plan.content)
        return _build(plan, storage, lease)


def _build(plan: BuildPlan, storage: Storage, lease: Lease) -> Summary:
    recipe, units = plan.recipe, shard_units(plan.recipe)
    _sweep(storage)
    committed = manifest.committed(storage)
    todo = [unit for unit in units if unit.name not in committed]
    with ray_session(plan.workers) if todo else contextlib.nullcontext():
        if todo:
            source.run(recipe, plan)
        if todo and recipe.proposal.kind == "top_k":
            probe.run(recipe, plan)
        with Meter("build", len(units), len(units) - len(todo)) as meter:
            work = partial(build_shard, plan, len(units))
            for counts in run_tasks(work, todo, workers=plan.workers):
                meter.add(*counts)
    _sweep(storage)
    lease.check()  # nobody has taken over while this process was not heard of
    check_claim(storage, plan.content)
    manifest.close(storage, digest(plan.content))
    return meter.summary(len(todo), storage.path(manifest.MANIFEST))


def _sweep(storage: Storage) -> None:
    for folder in ("", manifest.SHARDS, manifest.ROWS):
        storage.sweep(folder)


def main(argv: list[str] | None = None) -> None:
    main_for("build", __doc__, run, shard_units, argv)


if __name__ == "__main__":
    main()
