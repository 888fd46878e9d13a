"""The pipeline's speed and size, each beside what it is compared with, in one run.

python -m remask.infra.benches.pipeline             # about two minutes
python -m remask.infra.benches.pipeline --no-ray    # without the parts that start Ray
"""

import argparse
import dataclasses
import hashlib
import io
import platform
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from remask.models import Backbone, SudokuConfig, SudokuMDM, load, revise, save
from remask.models.history import HistoryState
from remask.pipeline import probe, rollout, source
from remask.pipeline.build import build_shard
from remask.pipeline.decodes import Draws, make_draws
from remask.pipeline.format.examples import Examples
from remask.pipeline.format.rows import decode_trajectories
from remask.pipeline.plan import (
    ROLLOUT_STAGE,
    BuildPlan,
    Plan,
    ShardUnit,
    Unit,
    example_units,
    make_plan,
    plan_facts,
    shard_units,
    unit_rng,
)
from remask.pipeline.recipe import BuildRecipe, ProposalConfig, RunConfig
from remask.pipeline.rollout_recipe import DecodeSpread, RolloutRecipe, RolloutRun
from remask.pipeline.runtime.jobs import ray_session, run_actors, run_tasks
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.source import read_examples
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.trajectory import TrajectoryConfig


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m remask.infra.benches.pipeline",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--no-ray", action="store_true", help="leave out what starts Ray")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    torch.set_num_threads(1)
    keep_memory()  # as the command and its workers do, for all sides
    with tempfile.TemporaryDirectory() as folder:
        recipe = make_recipe(folder, boards=16384)
        for unit in example_units(recipe):
            source.make_examples(make_plan(recipe), unit)
        bench_build(recipe)
        bench_bytes(recipe)
        bench_probe(recipe)
        bench_rollout(folder)
        if not arguments.no_ray:
            bench_workers(recipe)
            bench_memory(folder)


def make_recipe(folder: str, boards: int, horizon: int = 6) -> BuildRecipe:
    """A recipe of 9×9 boards: symmetric images of a few, so that making them takes no time."""
    backbone = Path(folder) / "frozen"
    if not backbone.exists():
        torch.manual_seed(0)
        save(SudokuMDM(SudokuConfig()), backbone)
    return BuildRecipe(
        output=f"{folder}/data-{boards}",
        source=SudokuSource(train=boards, held_out=0, images=4096),
        trajectories=TrajectoryConfig(horizon=horizon, noisy_count=(4, 20)),
        proposal=ProposalConfig(kind="uniform"),
        run=RunConfig(workers=0),
    )


def bench_build(recipe: BuildRecipe) -> None:
    """Positions per second on one core, Parquet written, against Python loops over rows."""
    units, rows = shard_units(recipe), 400
    plain = write_plain_examples(make_plan(recipe), rows)
    positions = 81 * sum(unit.examples.count for unit in units)
    times = []
    for turn in range(5):  # to new files, as a build does: replacing a file costs a flush
        output = f"{recipe.output}/{turn}"
        plan = make_plan(dataclasses.replace(recipe, output=output, cache=recipe.output))
        sides = [
            (partial(build_shards, plan, units), positions),
            (partial(build_by_rows, plan.recipe, plain, with_states=False), 81 * rows),
            (partial(build_by_rows, plan.recipe, plain, with_states=True), 81 * rows),
        ]
        times.append([seconds(work) / count for work, count in sides])
    fast, lean, full = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"build, one core, Parquet written: {1e-6 / fast:.1f} million positions/s\n"
        f"  a Python loop over rows, boundaries only: {1e-6 / lean:.2f}, ratio {lean / fast:.0f}x\n"
        f"  the same with all states written out: {1e-6 / full:.2f}, ratio {full / fast:.0f}x"
    )


def build_shards(plan: BuildPlan, units: list[ShardUnit]) -> None:
    for unit in units:
        build_shard(plan, len(units), unit)


def write_plain_examples(plan: BuildPlan, count: int) -> str:
    """Write some examples unpacked: a byte per cell, a bit per cell for editable."""
    examples = read_examples(plan, example_units(plan.recipe)[0])
    editable = np.packbits(examples.editable[:count], axis=1, bitorder="little")
    columns = {
        "example_id": pa.array(examples.example_ids[:count]),
        "target": pa.array([x.tobytes() for x in examples.target[:count]], pa.binary()),
        "editable": pa.array([x.tobytes() for x in editable], pa.binary()),
        "prompt_length": pa.array(examples.prompt_lengths[:count]),
    }
    path = f"{plan.recipe.output}/plain.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    return path


def build_by_rows(recipe: BuildRecipe, examples: str, *, with_states: bool) -> None:
    """The same job as a plain loop over rows and positions."""
    chance, horizon = random.Random(0), recipe.trajectories.horizon
    low, high = recipe.trajectories.noisy_count or (0, 0)
    rows, rules = [], dict.fromkeys(("keep", "mask", "wrong"), 0)
    for example in pq.read_table(examples).to_pylist():
        target = list(example["target"])
        wrong, masked_at, revealed_at = list(target), [0] * 81, [0] * 81
        for i in chance.sample(range(81), chance.randint(low, high)):
            if chance.random() < recipe.trajectories.rules["wrong"]:
                wrong[i] = chance.choice([d for d in range(1, 10) if d != target[i]])
                masked_at[i] = chance.randint(1, horizon - 1)
            revealed_at[i] = chance.randint(masked_at[i] + 1, horizon)
        for beta, mu in zip(masked_at, revealed_at, strict=True):
            rules["wrong" if beta else "mask" if mu else "keep"] += 1
        row: dict[str, Any] = example | {"target": target, "step": chance.randrange(horizon)}
        if with_states:
            row["states"] = [
                [
                    w if k < beta else 0 if k < mu else x
                    for x, w, beta, mu in zip(target, wrong, masked_at, revealed_at, strict=True)
                ]
                for k in range(horizon + 1)
            ]
        else:
            row |= {"wrong": wrong, "masked_at": masked_at, "revealed_at": revealed_at}
        rows.append(row)
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out, compression="zstd")
    hashlib.sha256(out.getvalue()).hexdigest()
    name = f"by-rows-{'states' if with_states else 'boundaries'}.parquet"
    Storage(recipe.output).write(name, out.getvalue())


def bench_bytes(recipe: BuildRecipe) -> None:
    """Bytes per position, in memory and on disk, beside all T+1 states in the same types."""
    print("bytes per position, segments beside all T + 1 states (ratio)")
    for horizon in (6, 64):
        law = dataclasses.replace(recipe.trajectories, horizon=horizon)
        changed = dataclasses.replace(recipe, trajectories=law)
        unit = shard_units(changed)[0]
        build_shard(make_plan(changed), 1, unit)
        data = Storage(changed.output).read(f"shards/{unit.name}.parquet")
        rows = decode_trajectories(data, unit.name)
        target, moves = rows.examples.target, rows.moves
        arrays = (target, moves.at, moves.tokens, moves.ends)
        memory = sum(x.nbytes for x in arrays) / target.size
        all_states = rows.segments.states(horizon).swapaxes(0, 1)  # [B, T+1, N]
        each = all_states.size / target.size  # T + 1
        narrow = all_states.nbytes / target.size
        table = pq.read_table(pa.BufferReader(data))
        column = pa.array([x.tobytes() for x in all_states], pa.binary())
        table = table.select(["example_id", "step", "editable", "prompt_length"])
        out = io.BytesIO()
        table = table.append_column("states", column)
        pq.write_table(table, out, compression="zstd", use_dictionary=False)
        disk, disk_states = (n / target.size for n in (len(data), len(out.getvalue())))
        print(
            f"  T = {horizon:2}: memory {memory:.2f}; states {narrow:.2f} in the same type "
            f"({memory / narrow:.2f}), {4 * each:.0f} as int32 ({memory / 4 / each:.2f}), "
            f"{8 * each:.0f} as int64 ({memory / 8 / each:.2f}); disk {disk:.2f}, states "
            f"{disk_states:.2f} ({disk / disk_states:.2f})"
        )


def bench_probe(recipe: BuildRecipe) -> None:
    """Probing against the bare model on the same batches, one thread."""
    backbone = SudokuMDM(SudokuConfig()).eval()
    examples = read_examples(make_plan(recipe), example_units(recipe)[0])
    examples = dataclasses.replace(
        examples,
        **{n: getattr(examples, n)[:600] for n in ("target", "editable", "lengths", "example_ids")},
    )
    config = ProposalConfig(kind="top_k", backbone="x", k=8)
    size = 16384 // 81
    batches = torch.from_numpy(examples.target).long().split(size)

    @torch.inference_mode()
    def bare() -> None:
        for ids in batches:
            backbone.logits(HistoryState(backbone.history, backbone.token_embedding).update(ids))

    rng = np.random.default_rng(0)
    sides = [bare, lambda: probe.probe_examples(backbone, examples, config, rng)]
    times = [[seconds(side) for side in sides] for _ in range(5)]
    bare_time, probe_time = (statistics.median(column) for column in zip(*times, strict=True))
    print(
        f"probe: {600 * 81 / probe_time:,.0f} tokens/s, the bare model "
        f"{600 * 81 / bare_time:,.0f}; share {bare_time / probe_time:.2f}"
    )


def bench_rollout(folder: str) -> None:
    """Rows per second of a rollout, shard written, beside the bare decoder on the same batches."""
    spread = DecodeSpread(steps=(3, 5), reveal_within=(0.5,), margin=(0.0,))
    recipe = RolloutRecipe(
        output=f"{folder}/decodes",
        checkpoint=f"{folder}/frozen",
        source=SudokuSource(train=256, held_out=0, images=256),
        decoders=spread,
        run=RolloutRun(workers=0),
    )
    plan = Plan(*plan_facts(recipe))
    source.run_plan(plan)
    backbone, (unit,) = load(recipe.checkpoint), shard_units(recipe)
    examples = read_examples(plan, unit.examples)
    rng = unit_rng(plan, ROLLOUT_STAGE, unit.examples, unit.replica)
    draws = make_draws(spread, len(examples.lengths), rng)
    sides = (
        partial(rollout.rollout_shard, plan, 1, backbone, unit),
        partial(decode_bare, backbone, examples, spread, draws),
    )
    times = [[seconds(side) for side in sides] for _ in range(3)]
    ours, bare = (statistics.median(column) for column in zip(*times, strict=True))
    rows = len(examples.lengths)
    print(
        f"rollout, one core, Parquet written: {rows / ours:.0f} rows/s\n"
        f"  the bare decoder: {rows / bare:.0f}, ratio {bare / ours:.2f}"
    )


def decode_bare(backbone: Backbone, examples: Examples, spread: DecodeSpread, draws: Draws) -> None:
    """Decode the rows of each decoder from MASKs, at most 16,384 tokens at once."""
    for index, (max_steps, policy) in enumerate(spread.decoders()):
        rows = np.flatnonzero(draws.decoder == index)
        revise(
            backbone,
            torch.full((len(rows), 81), backbone.mask_id),
            policy=policy,
            max_steps=max_steps,
            seed=draws.seed,
            row_ids=torch.from_numpy(rows),
            batch_size=16384 // 81,
        )


def bench_workers(recipe: BuildRecipe) -> None:
    """The same units on one Ray worker and on two, the workers warm."""
    top_k = dataclasses.replace(
        recipe,
        proposal=ProposalConfig(kind="top_k", backbone=f"{Path(recipe.output).parent}/frozen", k=8),
    )
    shards = [ShardUnit(u, r) for r in range(240) for u in example_units(recipe)]
    units = example_units(dataclasses.replace(recipe, examples_per_shard=512))[:16]
    times: dict[str, list[float]] = {"build": [], "probe": []}
    for workers in (1, 2):
        with ray_session(workers):
            work = partial(build_shard, make_plan(recipe), 1)
            list(run_tasks(work, shards[:8], workers=workers))
            times["build"].append(seconds(lambda: list(run_tasks(work, shards, workers=workers))))  # noqa: B023
            probing = run_actors(partial(_prober, top_k), [units[0]] * 4 + units, workers=workers)
            for _ in range(4):
                next(probing)
            times["probe"].append(seconds(lambda: list(probing)))  # noqa: B023
    for stage, (one, two) in times.items():
        print(f"{stage}, two Ray workers against one: {one / two:.2f}x ({one:.1f} s, {two:.1f} s)")


def _prober(recipe: BuildRecipe) -> Callable[[Unit], int]:
    """A probing worker that writes nothing."""
    torch.set_num_threads(1)
    plan, backbone = make_plan(recipe), load(recipe.proposal.backbone or "")

    def work(unit: Unit) -> int:
        examples = read_examples(plan, Unit(unit.split, 0, 0, 16384))
        part = {
            n: getattr(examples, n)[:512] for n in ("target", "editable", "lengths", "example_ids")
        }
        rng = np.random.default_rng(0)
        probe.probe_examples(backbone, dataclasses.replace(examples, **part), recipe.proposal, rng)
        return 512

    return work


def bench_memory(folder: str) -> None:
    """Peak resident memory of the driver and of a worker, for some rows and ten times as many."""
    recipe = make_recipe(folder, boards=4096)
    unit = example_units(recipe)[0]
    source.make_examples(make_plan(recipe), unit)
    peaks = []
    with ray_session(1):
        for count in (8, 80):
            shards = [ShardUnit(unit, replica) for replica in range(count)]
            workers = max(run_tasks(partial(_peak, recipe), shards, workers=1))
            peaks.append((_resident(), workers))
    (driver, worker), (driver_10, worker_10) = peaks
    print(
        f"peak memory at 10 times the rows: driver {driver_10 / driver:.2f}x "
        f"({driver_10 / 1e6:.0f} MB), worker {worker_10 / worker:.2f}x ({worker_10 / 1e6:.0f} MB)"
    )


def _peak(recipe: BuildRecipe, unit: ShardUnit) -> int:
    build_shard(make_plan(recipe), 1, unit)
    return _resident()


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
