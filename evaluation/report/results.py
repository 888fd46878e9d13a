"""The files that `remask eval` writes into a folder, read and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa

from remask.evaluation.player import PlayerSample
from remask.evaluation.recipe import CurveConfig, HeadlineConfig, TableConfig
from remask.evaluation.registry import find_suite
from remask.evaluation.stats.labels import RunName, label_of, run_labels
from remask.evaluation.stats.tables import SCORES
from remask.models.config import from_mapping
from remask.pipeline.format.tables import read_table
from remask.pipeline.runtime.storage import Storage

SCORES_FILE = "scores.parquet"
EVALUATION_FILE = "evaluation.json"
SHOWCASE_FILE = "showcase.json"
RUN_KEYS = ("suite", "checkpoint", "decoder")
"""Names that tell the runs of a showcase apart."""

C = TypeVar("C")


@dataclass(frozen=True)
class ShownRun:
    """A run with samples that the report can show."""

    run: RunName
    label: str
    samples: tuple[PlayerSample, ...]

    @property
    def suite(self) -> str:
        return self.run[0]


@dataclass(frozen=True)
class Evaluation:
    """One folder."""

    uri: str
    title: str
    scores: pl.DataFrame
    """A table of the schema `SCORES`."""
    headline: HeadlineConfig | None
    tables: tuple[TableConfig, ...]
    curves: tuple[CurveConfig, ...]
    labels: dict[RunName, str]
    """What each run is called."""
    recipe: dict[str, Any]
    provenance: dict[str, Any]
    runs: list[dict[str, Any]]
    showcase: list[ShownRun]
    not_shown: list[str]
    """A sentence for each run whose samples the report cannot show."""

    def label(self, run: RunName) -> str:
        return label_of(self.labels, run)

    @property
    def settings(self) -> dict[RunName, Any]:
        """The settings of each run's decoder."""
        return {run_name(run): run.get("settings") for run in self.runs}


def run_name(run: Mapping[str, Any]) -> RunName:
    """What tells a run apart from the others, from its facts or its entry in the showcase."""
    suite, checkpoint, decoder = (str(run.get(key, "?")) for key in RUN_KEYS)
    return suite, checkpoint, decoder


def read_evaluation(uri: str) -> Evaluation:
    """Read a folder; ValueError says what is missing or damaged."""
    storage = Storage(uri)
    for name in (SCORES_FILE, EVALUATION_FILE):
        if not storage.exists(name):
            missing = f"{uri} has no {name}" if storage.exists("") else f"there is no folder {uri}"
            raise ValueError(f"{missing}; run `remask eval` first")
    path = storage.path(EVALUATION_FILE)
    evaluation = _read_json(storage, EVALUATION_FILE)
    recipe, runs = evaluation.get("recipe"), evaluation.get("runs")
    provenance = evaluation.get("provenance") or {}
    if not (isinstance(recipe, dict) and isinstance(runs, list) and isinstance(provenance, dict)):
        raise _damaged(path, "it must have a recipe, runs and their provenance")
    if not all(isinstance(run, dict) for run in runs):
        raise _damaged(path, "a run must be keys and values")
    scores = _read_scores(storage)
    headline = _read_headline(recipe, path)
    tables = _read_configs(TableConfig, "tables", recipe, path)
    labels = run_labels(scores, (*tables, *([headline] if headline else [])))
    showcase, not_shown = _read_showcase(storage, labels)
    return Evaluation(
        uri=storage.uri,
        title=_title(recipe, tables),
        scores=scores,
        headline=headline,
        tables=tables,
        curves=_read_configs(CurveConfig, "curves", recipe, path),
        labels=labels,
        recipe=recipe,
        provenance=provenance,
        runs=runs,
        showcase=showcase,
        not_shown=not_shown,
    )


def _title(recipe: dict[str, Any], tables: Sequence[TableConfig]) -> str:
    """The recipe's title. Recipes of earlier versions have none, and are named by their first
    table."""
    return str(recipe.get("title") or (tables[0].title if tables else "Evaluation"))


def _read_showcase(
    storage: Storage, labels: Mapping[RunName, str]
) -> tuple[list[ShownRun], list[str]]:
    """The runs that the report can show, and a sentence for each of the others."""
    if not storage.exists(SHOWCASE_FILE):
        return [], []
    showcase, not_shown = [], []
    for entry in _read_json(storage, SHOWCASE_FILE):
        try:
            kind, suite = entry["kind"], find_suite(entry["kind"])
            samples = [suite and suite.player_sample(sample) for sample in entry["samples"]]
            shown = tuple(sample for sample in samples if sample is not None)
            suite_name, checkpoint, decoder = (str(entry[key]) for key in RUN_KEYS)
            name = suite_name, checkpoint, decoder
            run = ShownRun(name, label_of(labels, name), shown)
        except (LookupError, TypeError, ValueError) as error:
            raise _damaged(storage.path(SHOWCASE_FILE), repr(error)) from error
        if shown:
            showcase.append(run)
        elif samples:
            not_shown.append(
                f"{run.suite}, {run.label}: the report has no player for samples of kind {kind}"
            )
    return showcase, not_shown


def _read_headline(recipe: dict[str, Any], path: str) -> HeadlineConfig | None:
    """The headline that a recipe asks for; recipes of earlier versions have none."""
    section = recipe.get("headline")
    return None if section is None else from_mapping(HeadlineConfig, section, f"{path}: headline")


def _read_configs(kind: type[C], name: str, recipe: dict[str, Any], path: str) -> tuple[C, ...]:
    """The tables or curves that a recipe asks the report to show."""
    sections = recipe.get(name) or []
    if not isinstance(sections, list):
        raise _damaged(path, f"its {name} must be a list, got {sections!r}")
    return tuple(from_mapping(kind, x, f"{path}: {name}: {i}") for i, x in enumerate(sections))


def _read_scores(storage: Storage) -> pl.DataFrame:
    path = storage.path(SCORES_FILE)
    try:
        read = read_table(storage.read(SCORES_FILE))
        read.validate(full=True)
        scores = pl.DataFrame(read).select(pl.col(name).cast(kind) for name, kind in SCORES.items())
    except (pa.ArrowException, OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from error
    if any(scores[name].null_count() for name in SCORES if name not in ("by", "at")):
        raise _damaged(path, "a score lacks a value")
    if scores.filter(pl.col("by").is_null() != pl.col("at").is_null()).height:
        raise _damaged(path, "a point of a curve needs both `by` and `at`")
    return scores


def _read_json(storage: Storage, name: str) -> Any:
    try:
        values = json.loads(storage.read(name))
    except (ValueError, RecursionError) as error:
        raise _damaged(storage.path(name), str(error)) from error
    kind = list if name == SHOWCASE_FILE else dict
    if not isinstance(values, kind):
        raise _damaged(storage.path(name), f"it must hold a {kind.__name__}")
    return values


def _damaged(path: str, reason: str) -> ValueError:
    return ValueError(f"{path} is damaged: {reason}; run `remask eval` again")
