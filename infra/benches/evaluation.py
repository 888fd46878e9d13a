"""The speed of decoding and of the evaluation stage, each beside what it is compared with.

python -m remask.infra.benches.evaluation              # three minutes, with the packaged model
python -m remask.infra.benches.evaluation --checkpoint runs/sudoku/train/model --no-ray
"""

import argparse
import platform
import statistics
import tempfile
from functools import partial

import numpy as np
import torch
from torch import Tensor

from remask.evaluation.decoder import Decoder
from remask.evaluation.evaluate import make_worker
from remask.evaluation.recipe import EvalRecipe, EvalRunConfig
from remask.evaluation.runs import make_runs
from remask.evaluation.suites.sudoku import SudokuSuite
from remask.infra.benches.pipeline import seconds
from remask.models import Backbone, Revision, RevisionPolicy, load, revise
from remask.models.history import HistoryState
from remask.pipeline.runtime.jobs import ray_session, run_actors
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.terminal import fail

BOARDS = 1000
BATCH = 128
"""Boards that a Ray worker decodes at once; the first part decodes all together."""
REPEATS = 2
WARM_UP_CHUNKS = 2


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m remask.infra.benches.evaluation",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--checkpoint", default="sudoku", help="a 9×9 model (default: the packaged one)"
    )
    parser.add_argument("--no-ray", action="store_true", help="leave out what starts Ray")
    arguments = parser.parse_args(argv)
    try:
        model = load(arguments.checkpoint)
        SudokuSuite().check(model)
    except ValueError as error:
        fail(parser.prog, 2, error)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}")
    torch.set_num_threads(1)
    keep_memory()
    suite = SudokuSuite(boards=BOARDS)
    boards = torch.from_numpy(np.stack([suite.sample(i)[1] for i in range(BOARDS)])).long()
    bench_decoding(model, boards)
    if not arguments.no_ray:
        bench_workers(arguments.checkpoint)


def bench_decoding(model: Backbone, boards: Tensor) -> None:
    """Compare decoding with finished boards leaving the batch, without, and bare passes."""
    revision = decode(model, boards)
    sides = [
        lambda: decode(model, boards),
        lambda: decode_together(model, boards, revision.stats.steps),
        lambda: bare_passes(model, revision.stats.forward_passes),
    ]
    times = [[seconds(side) for side in sides] for _ in range(REPEATS)]
    leaving, together, bare = (statistics.median(column) for column in zip(*times, strict=True))
    passes = int(revision.stats.forward_passes.sum())
    print(
        f"decoding: {len(boards) / leaving:,.0f} boards/s, {passes / len(boards):.2f} passes each\n"
        f"  against all boards until the last is done: {together / leaving:.2f}x\n"
        f"  share of the bare forward passes' speed: {bare / leaving:.2f}"
    )


def decode(model: Backbone, boards: Tensor) -> Revision:
    return revise(model, boards, max_steps=32)


def decode_together(model: Backbone, boards: Tensor, steps: Tensor) -> Revision:
    """Decode with every board in the batch until the slowest is done."""
    slowest = int(steps.max())
    return revise(model, boards, policy=RevisionPolicy(patience=slowest + 1), max_steps=slowest)


@torch.inference_mode()
def bare_passes(model: Backbone, passes: Tensor) -> None:
    """Run the forward passes alone, on batches that shrink as boards finish."""
    for step in range(int(passes.max())):
        ids = torch.ones(int((passes > step).sum()), model.max_length or 0, dtype=torch.long)
        embeds = HistoryState(model.history, model.token_embedding).update(ids)
        model.logits(embeds)


def bench_workers(checkpoint: str) -> None:
    """Compare one Ray actor with two, both warm, at the work of the evaluation stage."""
    times = []
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder, ray_session(workers):
            recipe = EvalRecipe(
                output=folder,
                suites={"boards": {"kind": "sudoku", "boards": 2 * BOARDS}},
                checkpoints={"model": checkpoint},
                decoders={"rm": Decoder(batch_size=BATCH)},
                run=EvalRunConfig(workers=workers),
                samples_per_chunk=64,
            )
            (run,) = make_runs(recipe)
            chunks = run.chunks
            work = run_actors(
                partial(make_worker, recipe),
                [*chunks[: WARM_UP_CHUNKS * workers], *chunks],
                workers=workers,
            )
            for _ in range(WARM_UP_CHUNKS * workers):
                next(work)
            times.append(seconds(lambda: list(work)))  # noqa: B023
    one, two = times
    print(f"two Ray workers against one: {one / two:.2f}x ({one:.1f} s, {two:.1f} s)")


if __name__ == "__main__":
    main()
