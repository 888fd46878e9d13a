"""The trainer's speed: each part is measured in the same run as what it is compared with.

python -m remask.infra.benches.training             # about five minutes
python -m remask.infra.benches.training --quick     # in one process, without Ray and ranks
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn import functional as F

from remask.models import Backbone
from remask.models.backbones.layers import MAX_UNFUSED_LENGTH, softmax_attention
from remask.models.history import HistoryConfig, encode_rows
from remask.pipeline import build
from remask.pipeline.format import examples, manifest, packing, parquet, rows
from remask.pipeline.format.examples import Examples, Vocabulary
from remask.pipeline.format.manifest import SHARDS
from remask.pipeline.format.parquet import SCHEMA_VERSION
from remask.pipeline.format.rows import TrajectoryRows, encode_trajectories
from remask.pipeline.proposal import Uniform
from remask.pipeline.recipe import BuildRecipe, ProposalConfig, RunConfig
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.trajectory import TrajectoryConfig, sample_moves
from remask.training.batch import Batch
from remask.training.launch import free_port
from remask.training.loader import Loader
from remask.training.mixture import Mixture
from remask.training.objective import oracle_action
from remask.training.optimizer import OptimizerConfig, make_optimizer
from remask.training.prefetch import Prefetched
from remask.training.recipe import HeldOutConfig, LogConfig, TrainRecipe
from remask.training.run.folder import State
from remask.training.run.logs import Log
from remask.training.shard_set import ShardSet
from remask.training.trainer import Trainer, prepared
from remask.training.world import World

BATCH = 64
ROUNDS = 5
LENGTHS = (80, 160, MAX_UNFUSED_LENGTH)
"""Sequence lengths at which attention is measured."""
CHECKS = (
    *((examples, "check_tokens"), (rows, "check_moves"), (rows, "check_ids")),
    *((packing, "check_sizes"), (parquet, "check_table")),
)
"""Functions that check the contents of rows, by the module that calls each."""
TEXT = {
    "kind": "llada", "d_model": 384, "n_layers": 8, "n_heads": 6, "n_kv_heads": 6,
    "mlp_hidden_size": 1024, "vocab_size": 8192, "mask_token_id": 8191, "max_sequence_length": 128,
}  # fmt: skip
MODELS = {
    "sudoku, 0.81M": ("boards", {"kind": "sudoku"}, BATCH, 4),
    "text-shaped, 20M": ("text", TEXT, 8, 2),
}
OPTIMIZER = {
    "sudoku": OptimizerConfig(kind="muon", lr=1e-4),
    "llada": OptimizerConfig(kind="adamw", lr=1e-5),
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m remask.infra.benches.training",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="leave out Ray and further ranks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        return run_child(json.loads(arguments.child))
    print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        write_boards(f"{folder}/boards")
        write_text(f"{folder}/text")
        if not arguments.quick:  # first, before this process has warmed up
            bench_settings(folder)
        keep_memory()
        speeds = [bench_trainer(folder, name) for name in MODELS]
        for length in LENGTHS:
            bench_attention(length)
        bench_loader(f"{folder}/boards", speeds[0], with_ray=not arguments.quick)
    return None


# The trainer against a bare loop ------------------------------------------------------------------


def bench_trainer(folder: str, name: str) -> float:
    """Compare updates by the trainer and by a bare loop; return the trainer's rows per second."""
    data, model, batch_size, steps = MODELS[name]
    recipe = make_recipe(f"{folder}/{data}", f"{folder}/run-{data}", model, batch_size)
    world = World.from_environment()
    with trainer_for(recipe, world) as (trainer, advance):
        backbone = trainer.plan.make_backbone()
        batches = [x[0] for x in itertools.islice(loader_for(trainer.plan).batches(), steps)]
        bare = BareLoop(backbone, trainer.plan.horizon)
        sides = {"trainer": lambda: advance(steps), "bare": lambda: bare.run(batches)}
        times = in_turns(sides)
        ratio = statistics.median(b / t for t, b in zip(*times.values(), strict=True))
        rows = steps * batch_size / statistics.median(times["trainer"])
        size = sum(x.numel() for x in backbone.parameters()) / 1e6
        print(
            f"trainer, {name} ({size:.2f}M parameters, batch {batch_size}): {rows:,.0f} rows/s, "
            f"{ratio:.2f} of a bare PyTorch loop"
        )
        bench_history(backbone, batches, trainer.plan.horizon, bare)
    return rows


class BareLoop:
    """The training step alone: no engine, loader, metrics or log."""

    def __init__(self, backbone: Backbone, horizon: int) -> None:
        self._model, self._horizon = backbone, horizon
        self._optimizer = make_optimizer(backbone, backbone.parameters(), OPTIMIZER[backbone.kind])

    def run(self, batches: list[Batch]) -> None:
        for batch in batches:
            loss = self._loss(batch)
            self._optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
            self._optimizer.step()

    def _loss(self, batch: Batch) -> Tensor:
        model = self._model
        state = batch.segments.state_at(batch.segments.step)
        embeds = embed(model, batch, self._horizon, model.history)
        hidden = model.hidden(embeds)[batch.editable]
        label = oracle_action(state, batch.target, model.mask_id)[batch.editable]
        return F.cross_entropy(model.head(hidden), label.long())


def embed(model: Backbone, batch: Batch, horizon: int, history: HistoryConfig) -> Tensor:
    return encode_rows(model.token_embedding, batch.segments, horizon=horizon, config=history)


def bench_history(model: Backbone, batches: list[Batch], horizon: int, bare: BareLoop) -> None:
    """The time that History Reference adds to a step, forward and backward."""
    batch = batches[0]
    upstream = torch.randn(*batch.target.shape, model.token_embedding.shape[1])

    def run(variant: str) -> None:
        for _ in range(20):
            history = HistoryConfig(variant=variant, norm=model.history.norm)  # pyright: ignore
            embed(model, batch, horizon, history).backward(upstream)

    times = in_turns(
        {
            "with": lambda: run("hr+decay+her"),
            "without": lambda: run("none"),
            "step": lambda: bare.run(batches),
        }
    )
    extra, step = (
        statistics.median(a - b for a, b in zip(times["with"], times["without"], strict=True)) / 20,
        statistics.median(times["step"]) / len(batches),
    )
    print(f"  history: {extra * 1e3:.2f} ms of a {step * 1e3:.0f} ms step, {extra / step:.1%}")


def bench_attention(length: int) -> None:
    """Compare our bf16 attention, forward and backward, with torch's fused kernel."""
    heads = torch.randn(3, BATCH, 5, length, 32, dtype=torch.bfloat16, requires_grad=True)
    upstream = torch.randn_like(heads[0])

    def run(attention: Callable[..., Tensor]) -> None:
        attention(*heads, None).backward(upstream)

    fused = F.scaled_dot_product_attention
    times = in_turns({"ours": lambda: run(softmax_attention), "fused": lambda: run(fused)})
    ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
    print(f"attention in bf16, {length} positions: {ratio:.1f} times as fast as the fused kernel")


# The loader against others ------------------------------------------------------------------------


def bench_loader(uri: str, trained: float, *, with_ray: bool) -> None:
    """Compare loaders by rows per second; the others read the same rows as lists of integers."""
    steps = ShardSet(uri, "train").num_rows // BATCH
    lists = write_lists(uri)

    def ours() -> None:
        shards = ShardSet(uri, "train")  # opened, verified and decoded again
        loader = Loader(Mixture.single(shards, BATCH, 0, 16384))
        for _ in itertools.islice(loader.batches(), steps):
            pass

    sides: dict[str, Callable[[], None]] = {
        "loader": ours,
        "Polars": lambda: by_polars(lists),
        "datasets, mapped": lambda: by_datasets(lists, streaming=False),
        "datasets, streaming": lambda: by_datasets(lists, streaming=True),
    }
    rates = {k: steps * BATCH / min(v) for k, v in in_turns(sides, 3).items()}
    if with_ray:
        rates["Ray Data"] = steps * BATCH / by_ray(lists)
    own = rates.pop("loader")
    others = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    print(
        f"loader: {own:,.0f} rows/s, {own / max(rates.values()):.1f} times the best of {others}; "
        f"{own / trained:,.0f} times what the trainer takes; checking rows is "
        f"{check_share(ours):.1%} of its time"
    )


def check_share(read: Callable[[], None]) -> float:
    """The share of a reader's CPU time that the checks of rows take."""
    spent = 0.0

    def timed(check: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any, **named: Any) -> None:
            nonlocal spent
            start = time.thread_time()
            check(*arguments, **named)
            spent += time.thread_time() - start

        return run

    with contextlib.ExitStack() as stack:
        for module, name in CHECKS:
            check = timed(getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, check))
        start = time.thread_time()
        for _ in range(ROUNDS):
            read()
        return spent / (time.thread_time() - start)


def write_lists(uri: str) -> str:
    """Write the training rows for other libraries: lists of integers, in one folder."""
    shards = ShardSet(uri, "train")
    folder = f"{uri}/lists"
    for i, size in enumerate(shards.sizes):
        segments = shards.open(i).read(range(int(size))).segments
        wrong, _, target = segments.tokens
        end_2, end_1 = segments.ends
        grids = {"target": target, "wrong": wrong, "end_2": end_2, "end_1": end_1}
        columns = {name: pa.array(list(x.astype(np.int32))) for name, x in grids.items()}
        columns["step"] = pa.array(segments.step.astype(np.int32))
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out, compression="zstd")
        Storage(folder).write(f"{i:05d}.parquet", out.getvalue())
    return folder


def by_polars(folder: str) -> None:
    for path in sorted(Path(folder).glob("*.parquet")):
        for part in pl.read_parquet(path).iter_slices(BATCH):
            for name in part.columns:
                column = part[name]
                values = column.explode() if column.dtype == pl.List else column
                torch.from_numpy(values.to_numpy().reshape(len(part), -1).copy())


def by_datasets(folder: str, *, streaming: bool) -> None:
    import datasets

    datasets.disable_progress_bars()
    files = sorted(str(x) for x in Path(folder).glob("*.parquet"))
    rows: Any = datasets.load_dataset(
        "parquet", data_files=files, split="train", streaming=streaming, cache_dir=f"{folder}/cache"
    )
    for _ in rows.with_format("torch").iter(batch_size=BATCH):
        pass


def by_ray(folder: str) -> float:
    """Seconds of the second pass, since the first one starts workers."""
    from remask.pipeline.runtime.jobs import ray_session

    with ray_session(os.cpu_count()):
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = ray.data.read_parquet(sorted(str(x) for x in Path(folder).glob("*.parquet")))
        times = []
        for _ in range(2):
            start = time.perf_counter()
            for _ in rows.iter_torch_batches(batch_size=BATCH):
                pass
            times.append(time.perf_counter() - start)
    return times[-1]


# Settings and ranks, each in its own processes ----------------------------------------------------


def bench_settings(folder: str) -> None:
    """Compare the Sudoku trainer's speed under other settings with the default's."""
    defaults = {"memory": True, "threads": 2, "ranks": 1, "compile": False}
    cases = {
        "default": {},
        "malloc as it comes": {"memory": False},
        "one thread": {"threads": 1},
        "two ranks of one thread": {"threads": 1, "ranks": 2},
        "torch.compile": {"compile": True},
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(2):
        for name, changes in cases.items():
            rates[name].append(run_ranks({**defaults, **changes, "folder": folder}))
    default = rates.pop("default")
    for name, changed in rates.items():
        ratio = statistics.median(a / b for a, b in zip(changed, default, strict=True))
        print(f"setting, {name}: {ratio:.2f} of the default's {max(default):,.0f} rows/s")


def run_ranks(settings: dict[str, Any]) -> float:
    """Train in new processes, and return the rows per second over all ranks."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "remask.infra.benches.training",
                "--child",
                json.dumps(settings),
            ],
            env=os.environ
            | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(settings["ranks"]),
                "LOCAL_SIZE": str(settings["ranks"]),
                "MASTER_PORT": port,
                "OMP_NUM_THREADS": str(settings["threads"]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(settings["ranks"])
    ]
    outputs = [process.communicate()[0] for process in processes]
    return float(outputs[0].splitlines()[-1])


def run_child(settings: dict[str, Any]) -> None:
    """Train for 16 steps and print the rows per second of the last 12, over all ranks."""
    if settings["memory"]:
        keep_memory()
    world, folder = World.from_environment(), settings["folder"]
    output = f"{folder}/child-{os.environ['MASTER_PORT']}"
    recipe = make_recipe(f"{folder}/boards", output, {"kind": "sudoku"}, BATCH)
    with trainer_for(recipe, world) as (trainer, advance):
        if settings["compile"]:
            model = trainer.learner.backbone
            model.hidden = torch.compile(model.hidden)
        advance(4)
        start = time.perf_counter()
        advance(12)
        print(12 * BATCH / (time.perf_counter() - start))
    world.leave()


# Data and recipes ---------------------------------------------------------------------------------


def make_recipe(shards: str, output: str, model: dict[str, Any], batch_size: int) -> TrainRecipe:
    return TrainRecipe(
        shards=shards,
        output=output,
        model=model,
        steps=1 << 20,
        batch_size=batch_size,
        shuffle_buffer=8192,
        optimizer=OPTIMIZER[model["kind"]],
        held_out=HeldOutConfig(every=0),
        log=LogConfig(tensorboard=False),
    )


@contextlib.contextmanager
def trainer_for(
    recipe: TrainRecipe, world: World
) -> Iterator[tuple[Trainer, Callable[[int], None]]]:
    """A trainer, and a function that advances it by some steps, with its loader and log."""
    with contextlib.ExitStack() as stack:
        plan, folder = stack.enter_context(prepared(recipe, world))
        world.join()
        trainer = Trainer(plan, folder, world)
        log = stack.enter_context(Log(folder, plan, world, State(0, world.size)))
        stream = stack.enter_context(Prefetched(loader_for(plan, world)))
        step = itertools.count()

        def advance(steps: int) -> None:
            for i in itertools.islice(step, steps):
                sums, skipped = trainer.update(i, next(stream))
                log.add(i + 1, sums, 1.0, skipped)

        yield trainer, advance


def loader_for(plan: Any, world: World | None = None) -> Loader:
    rank, size = (world.rank, world.size) if world else (0, 1)
    return Loader(plan.train, rank=rank, world_size=size)


def in_turns(sides: dict[str, Callable[[], None]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Seconds of each side in every round, the sides in turn, after a round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(rounds + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            if i:
                times[name].append(time.perf_counter() - start)
    return times


def write_boards(uri: str) -> None:
    """Write Sudoku shards: symmetric images of a few boards, since their digits do not matter."""
    recipe = BuildRecipe(
        output=uri,
        source=SudokuSource(side=9, train=16384, held_out=0, images=256),
        trajectories=TrajectoryConfig(noisy_count=(4, 30)),
        proposal=ProposalConfig(kind="wrong_digit"),
        replicas=4,
        run=RunConfig(workers=0),
    )
    build.run(recipe)


def write_text(uri: str) -> None:
    """Write rows of 128 random tokens, 96 of them editable."""
    rng = np.random.default_rng(0)
    vocabulary = Vocabulary(TEXT["vocab_size"], TEXT["mask_token_id"])
    law, shape = TrajectoryConfig(noisy_rate=(0.1, 0.6)), (1024, 128)
    target = rng.integers(0, 8191, shape).astype(np.uint16)
    editable = np.broadcast_to(np.arange(128) >= 32, shape).copy()
    proposal, mask_id = Uniform(vocabulary.allowed), vocabulary.mask_id
    moves = sample_moves(target, editable, proposal, law, rng, mask_id=mask_id)
    lengths = np.full(1024, 128)
    examples = Examples(
        [str(i) for i in range(1024)], target, editable, lengths, lengths, vocabulary
    )
    data = encode_trajectories(TrajectoryRows(examples, moves, law.horizon))
    storage, path = Storage(uri), f"{SHARDS}/train-00000-00.parquet"
    storage.write(path, data)
    row = dict(manifest.EMPTY_ROW)
    row |= {"shard": "train-00000-00", "path": path, "split": "train", "rows": 1024}
    row |= {"schema_version": SCHEMA_VERSION, "horizon": law.horizon, "num_shards": 1}
    row |= {"longest": 128, "vocab_size": vocabulary.size, "mask_id": vocabulary.mask_id}
    row |= {"sha256": hashlib.sha256(data).hexdigest()}
    manifest.commit(storage, row)
    manifest.close(storage, "")


if __name__ == "__main__":
    main()
