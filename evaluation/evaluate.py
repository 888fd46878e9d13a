"""Checkpoints → predictions and scores: suites × checkpoints × decoders, as Ray tasks.

Predictions are stored under a digest of everything they depend on, one file per chunk of samples.
A killed evaluation that is run again decodes only what is missing. Another suite, checkpoint or
decoder costs only its own runs.

    remask eval evaluation/recipes/sudoku.yaml
    python -m remask.evaluation.evaluate evaluation/recipes/sudoku.yaml run.workers=2
    ray job submit --working-dir . -- python -m remask.evaluation.evaluate RECIPE output=s3://bucket/eval
"""

import contextlib
import dataclasses
import functools
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.report.results import EVALUATION_FILE, SCORES_FILE, SHOWCASE_FILE
from remask.evaluation.runs import Chunk, Run, make_runs
from remask.evaluation.stats.tables import SCORES, make_tables, print_table
from remask.evaluation.suite import Score, left_out, with_left_out
from remask.models import load
from remask.models.checkpoints.checkpoint import outline, trained_history
from remask.pipeline.format.tables import read_table
from remask.pipeline.runtime.command import main_for, plain
from remask.pipeline.runtime.ending import command
from remask.pipeline.runtime.jobs import run_actors
from remask.pipeline.runtime.progress import Meter, Summary
from remask.pipeline.runtime.provenance import provenance
from remask.pipeline.runtime.storage import Storage, StorageError, absolute, check_kept
from remask.pipeline.runtime.terminal import make_console, say


def make_worker(recipe: EvalRecipe) -> Callable[[Chunk], tuple[int, int]]:
    """A worker that decodes chunk after chunk and keeps the last model in memory."""
    on_gpu = torch.cuda.is_available() and recipe.run.gpus_per_worker > 0
    if recipe.run.workers != 0:
        torch.set_num_threads(recipe.run.threads)
    device = "cuda" if on_gpu else "cpu"
    read = functools.lru_cache(maxsize=1)(
        lambda path: load(path, device=device, history=trained_history(path))
    )
    storage = Storage(recipe.output)

    def work(chunk: Chunk) -> tuple[int, int]:
        run = chunk.run
        table = run.suite.predict(read(run.path), chunk.samples, run.decoder)
        out = io.BytesIO()
        pq.write_table(table, out, compression="zstd")
        storage.write_sealed(chunk.name, out.getvalue())
        return table.num_rows, int(sum(table["forward_passes"].to_pylist()))

    return work


def run(recipe: EvalRecipe) -> Summary:
    """Evaluate, and print the recipe's tables."""
    summary, scores = evaluate(recipe)
    console = make_console()
    for table in make_tables(scores, recipe.tables):
        print_table(console, table)
    return summary


def evaluate(recipe: EvalRecipe) -> tuple[Summary, pl.DataFrame]:
    """Decode what is missing, then score every run and write what the report needs."""
    check_kept("output", recipe.output)
    recipe = dataclasses.replace(recipe, output=absolute(recipe.output))
    storage, runs = Storage(recipe.output), make_runs(recipe)
    chunks = {chunk.name: chunk for run in runs for chunk in run.chunks}  # equal runs share them
    written = {
        f"{folder}/{name}"
        for folder in {r.folder for r in runs}
        for name in storage.sealed_names(folder)
    }
    todo = [chunk for name, chunk in chunks.items() if name not in written]
    workers = 0 if storage.is_private else recipe.run.workers
    with Meter("eval", len(chunks), len(chunks) - len(todo), counts="passes") as meter:
        for counts in run_actors(
            partial(make_worker, recipe),
            todo,
            workers=workers,
            num_gpus=recipe.run.gpus_per_worker,
        ):
            meter.add(*counts)
    for folder in {r.folder for r in runs}:
        storage.sweep(folder)
    scores = write_results(recipe, storage, runs)
    return meter.summary(len(todo), storage.path(SCORES_FILE)), scores


def write_results(recipe: EvalRecipe, storage: Storage, runs: list[Run]) -> pl.DataFrame:
    """Score all runs from their predictions, and write scores, facts and showcase samples."""
    rows, facts, showcases = [], [], []
    for item in runs:
        predictions = read_predictions(storage, item)
        with _damage_named(storage, item):
            rows += [_score_row(item, score) for score in item.suite.score(predictions)]
            samples = item.suite.showcase(predictions)
        facts.append(_facts(item, predictions))
        if reasons := facts[-1]["left_out"]:
            name = f"{item.suite_name}, {item.checkpoint}, {item.decoder_name}"
            say(
                f"eval: {name}: {len(reasons)} of {item.suite.num_samples} samples left out, named "
                f"in {storage.path(EVALUATION_FILE)}",
                to_stderr=True,
            )
        if item.member == 0:
            names = {
                "suite": item.suite_name,
                "checkpoint": item.checkpoint,
                "decoder": item.decoder_name,
                "kind": item.suite.kind,
            }
            showcases.append(names | {"samples": samples})
    scores = pl.DataFrame(rows, schema=SCORES)
    out = io.BytesIO()
    scores.write_parquet(out)
    evaluation = {"recipe": plain(recipe), "provenance": provenance(), "runs": facts}
    storage.write(SHOWCASE_FILE, json.dumps(showcases).encode())
    storage.write(EVALUATION_FILE, json.dumps(evaluation, indent=2).encode())
    storage.write(SCORES_FILE, out.getvalue())  # last, because the report looks for it
    return scores


def read_predictions(storage: Storage, run: Run) -> pa.Table:
    """All predictions of a run, in the order of its samples."""
    tables = []
    for chunk in run.chunks:
        try:
            tables.append(read_table(storage.read_sealed(chunk.name)))
        except (pa.ArrowException, OSError) as error:
            raise StorageError(
                f"{storage.path(chunk.name)} is damaged; remove it and run the evaluation again"
            ) from error
    with _damage_named(storage, run):
        reasons = [x for table in tables for x in left_out(table)]
        return with_left_out(pa.concat_tables(tables), reasons)


@contextlib.contextmanager
def _damage_named(storage: Storage, run: Run) -> Iterator[None]:
    """Turn errors about predictions that the suite did not write into one that names the folder."""
    try:
        yield
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StorageError(
            f"{run.suite_name} cannot be scored from {storage.path(run.folder)}: {reason}; if that "
            "folder was changed, remove it and run the evaluation again"
        ) from error


def _score_row(run: Run, score: Score) -> dict[str, Any]:
    return {
        "suite": run.suite_name,
        "suite_kind": run.suite.kind,
        "suite_version": run.suite.version,
        "checkpoint": run.checkpoint,
        "member": run.member,
        "fingerprint": run.fingerprint,
        "decoder": run.decoder_name,
        **dataclasses.asdict(score),
    }


def _facts(run: Run, predictions: pa.Table) -> dict[str, Any]:
    model = outline(run.path)
    return {
        "suite": run.suite_name,
        "suite_settings": plain(run.suite) | {"kind": run.suite.kind, "version": run.suite.version},
        "checkpoint": run.checkpoint,
        "member": run.member,
        "path": run.path,
        "fingerprint": run.fingerprint,
        "parameters": sum(x.numel() for x in model.parameters()),
        "dtype": str(model.token_embedding.dtype).removeprefix("torch."),
        "history": plain(trained_history(run.path)),
        "decoder": run.decoder_name,
        "settings": plain(run.decoder),
        "samples": predictions.num_rows,
        "left_out": left_out(predictions),
        "forward_passes": int(sum(predictions["forward_passes"].to_pylist())),
        "predictions": run.folder,
    }


def _units(recipe: EvalRecipe) -> list[Chunk]:
    return [chunk for run in make_runs(recipe) for chunk in run.chunks]


def main(argv: list[str] | None = None) -> None:
    main_for(
        "eval",
        __doc__,
        run,
        _units,
        argv,
        EvalRecipe,
        advise=lambda recipe, name: command("report", recipe.output),
    )


if __name__ == "__main__":
    main()
