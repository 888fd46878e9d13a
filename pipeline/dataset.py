"""A data set's folder as a stage fills it: claimed by one recipe, committed shard by shard, closed.

Kill a stage anywhere and run it again: it makes the shards that are missing, and the bytes are
those of an undisturbed run.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from remask.models.checkpoints.input_files import IMAGES
from remask.pipeline.format import manifest
from remask.pipeline.format.examples import Examples
from remask.pipeline.format.parquet import SCHEMA_VERSION
from remask.pipeline.inputs.describe import FOLDER, write_description
from remask.pipeline.moves import Moves
from remask.pipeline.plan import Plan, ShardUnit
from remask.pipeline.runtime.jobs import ray_session
from remask.pipeline.runtime.lease import Lease, held, is_free
from remask.pipeline.runtime.progress import Meter, Summary
from remask.pipeline.runtime.provenance import RECIPE, check_claim, claim
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.storage import Storage

Counts = tuple[int, int, int]
"""Rows, tokens and skipped records of a shard."""


def fill(
    stage: str,
    plan: Plan[Any],
    units: list[ShardUnit],
    prepare: Callable[[], object],
    make_shards: Callable[[list[ShardUnit]], Iterator[Counts]],
) -> Summary:
    """Make the shards that are missing, and close the manifest.

    Args:
        stage: Name of the stage.
        plan: Names the output.
        units: All shards of the data set.
        prepare: Runs the earlier stages; called only if a shard is missing.
        make_shards: Makes and commits shards, in any order, and yields the counts of each.
    """
    storage, num_shards = Storage(plan.recipe.output), len(units)
    has_recipe = storage.exists(RECIPE)
    if has_recipe and is_free(storage) and manifest.is_closed(storage, num_shards):
        # There is nothing to write, so rights to read are enough.
        check_claim(storage, plan.content)
        return Meter(stage, num_shards, num_shards).summary(0, storage.path(manifest.MANIFEST))
    with held(storage) as lease:
        if not has_recipe:  # it may have been lost
            manifest.check_recipe(storage, digest(plan.content))
        claim(storage, plan.content)
        return _fill(stage, plan, units, prepare, make_shards, storage, lease)


def _fill(
    stage: str,
    plan: Plan[Any],
    units: list[ShardUnit],
    prepare: Callable[[], object],
    make_shards: Callable[[list[ShardUnit]], Iterator[Counts]],
    storage: Storage,
    lease: Lease,
) -> Summary:
    _sweep(storage)
    write_description(storage, plan.recipe.source)
    committed = manifest.committed(storage)
    todo = [unit for unit in units if unit.name not in committed]
    with ray_session(plan.workers) if todo else contextlib.nullcontext():
        if todo:
            prepare()
        with Meter(stage, len(units), len(units) - len(todo)) as meter:
            for counts in make_shards(todo):
                meter.add(*counts)
    _sweep(storage)
    lease.check()  # nobody has taken over while this process was not heard of
    check_claim(storage, plan.content)
    manifest.close(storage, digest(plan.content))
    return meter.summary(len(todo), storage.path(manifest.MANIFEST))


def _sweep(storage: Storage) -> None:
    for folder in ("", manifest.SHARDS, manifest.ROWS, FOLDER, f"{FOLDER}/{IMAGES}"):
        storage.sweep(folder)


def commit_shard(
    plan: Plan[Any],
    unit: ShardUnit,
    examples: Examples,
    moves: Moves,
    data: bytes,
    *,
    num_shards: int,
    num_editable: np.ndarray,
    **more: Any,
) -> Counts:
    """Write a shard, then its manifest row.

    Args:
        plan: Names the output and its hashes.
        unit: Which shard it is.
        examples: Its clean sequences.
        moves: Their trajectories.
        data: The bytes of its file.
        num_shards: Shards of the data set.
        num_editable: Editable positions of each row, [B].
        **more: Columns of the manifest row that depend on where the trajectories come from.
    """
    storage, path = Storage(plan.recipe.output), f"{manifest.SHARDS}/{unit.name}.parquet"
    target, vocabulary = examples.target, examples.vocabulary
    row = manifest.EMPTY_ROW | {
        "shard": unit.name,
        "path": path,
        "split": unit.examples.split,
        "replica": unit.replica,
        "schema_version": SCHEMA_VERSION,
        "recipe": digest(plan.content),
        "source": plan.source_key,
        "backbone": plan.backbone,
        "tokenizer": plan.tokenizer,
        "seed": plan.recipe.seed,
        "segments": len(moves.ends) + 1,
        "vocab_size": vocabulary.size,
        "mask_id": vocabulary.mask_id,
        "rows": len(num_editable),
        "skipped": examples.num_skipped,
        "tokens": int(examples.lengths.sum()),
        "longest": int(examples.lengths.max(initial=0)),
        "editable": int(num_editable.sum()),
        **moves.rule_counts(target, examples.editable, vocabulary.mask_id),
        "wrong_segments": moves.num_wrong(target, vocabulary.mask_id),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "num_shards": num_shards,
        **more,
    }
    storage.write(path, data, flush_folder=False)  # its manifest row commits it
    manifest.commit(storage, row)
    return row["rows"], row["tokens"], row["skipped"]
