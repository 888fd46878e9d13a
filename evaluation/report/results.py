"""What `remask eval` leaves in a folder, read and checked."""

import base64
import io
import json
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from remask.evaluation.recipe import CurveConfig, TableConfig
from remask.evaluation.stats.tables import SCORES
from remask.models.config import from_mapping
from remask.pipeline.runtime.storage import Storage

SCORES_FILE = "scores.parquet"
EVALUATION_FILE = "evaluation.json"
SHOWCASE_FILE = "showcase.json"

PICTURES = ("source", "target", "edit", "mask", "difference")
TEXT_COLUMNS = 8
"""Of the player's lines, for a phone to show them."""
PNG = b"\x89PNG\r\n\x1a\n"

C = TypeVar("C")


@dataclass(frozen=True)
class Evaluation:
    """One folder."""

    uri: str
    scores: pl.DataFrame
    """Of the schema `SCORES`."""
    tables: tuple[TableConfig, ...]
    curves: tuple[CurveConfig, ...]
    recipe: dict[str, Any]
    provenance: dict[str, Any]
    runs: list[dict[str, Any]]
    showcase: list[dict[str, Any]]
    """Entries of kinds the player knows, each sample checked."""
    not_shown: list[str]
    """A sentence for each entry of another kind."""


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
    showcase, not_shown = [], []
    for entry in _read_json(storage, SHOWCASE_FILE) if storage.exists(SHOWCASE_FILE) else ():
        try:
            name = f"{entry['suite']}, {entry['checkpoint']}, {entry['decoder']}"
            if entry["kind"] in CHECKS:
                check = CHECKS[entry["kind"]]
                showcase.append(entry | {"samples": [check(s) for s in entry["samples"]]})
            else:
                not_shown.append(f"{name}: samples of kind {entry['kind']} have no player yet")
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(storage.path(SHOWCASE_FILE), repr(error)) from error
    return Evaluation(
        uri=storage.uri,
        scores=_read_scores(storage),
        tables=_read_configs(TableConfig, "tables", recipe, path),
        curves=_read_configs(CurveConfig, "curves", recipe, path),
        recipe=recipe,
        provenance=provenance,
        runs=runs,
        showcase=showcase,
        not_shown=not_shown,
    )


def _read_configs(kind: type[C], name: str, recipe: dict[str, Any], path: str) -> tuple[C, ...]:
    """What a recipe asked the report to show."""
    found = recipe.get(name) or []
    if not isinstance(found, list):
        raise _damaged(path, f"its {name} must be a list, got {found!r}")
    return tuple(from_mapping(kind, x, f"{path}: {name}: {i}") for i, x in enumerate(found))


def _read_scores(storage: Storage) -> pl.DataFrame:
    path = storage.path(SCORES_FILE)
    try:
        read = pq.read_table(io.BytesIO(storage.read(SCORES_FILE)))
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
        found = json.loads(storage.read(name))
    except (ValueError, RecursionError) as error:
        raise _damaged(storage.path(name), str(error)) from error
    kind = list if name == SHOWCASE_FILE else dict
    if not isinstance(found, kind):
        raise _damaged(storage.path(name), f"it must hold a {kind.__name__}")
    return found


def _checked_board(sample: dict[str, Any]) -> dict[str, Any]:
    """A Sudoku sample as the player takes it, every board of the right size."""
    side, boards = sample["side"], [sample["solution"], *sample["states"]]
    if not isinstance(side, int) or side < 1 or len(boards) < 2:
        raise ValueError(f"a sample needs a side and states, got side {side!r}")
    for board in boards:
        if len(board) != side**2 or not all(type(c) is int and 0 <= c <= side for c in board):
            raise ValueError(f"sample {sample['sample_id']!r}: a board is {side**2} digits")
    box = math.isqrt(side)
    return {
        "id": str(sample["sample_id"]),
        "note": str(sample.get("note") or ""),
        "columns": side,
        "box": box if box * box == side else side,
        "solution": sample["solution"],
        "states": sample["states"],
    }


def _checked_edit(sample: dict[str, Any]) -> dict[str, Any]:
    """An image edit as the gallery and the player take it: codes from 1, 0 for MASK."""
    rows, columns, pictures = sample["rows"], sample["columns"], sample["pictures"]
    grids, steps = [sample["solution"], *sample["states"]], sample["steps"]
    if not all(isinstance(n, int) and n > 0 for n in (rows, columns)) or len(grids) < 2:
        raise ValueError(f"an edit needs rows, columns and states, got {rows!r} and {columns!r}")
    for grid in grids:
        if len(grid) != rows * columns or not all(type(c) is int and c >= 0 for c in grid):
            raise ValueError(f"sample {sample['sample_id']!r}: a grid is {rows * columns} codes")
    if len(steps) != len(grids) - 1:
        raise ValueError(f"{len(grids) - 1} states have {len(steps)} pictures")
    return {
        "id": str(sample["sample_id"]),
        "note": str(sample.get("note") or ""),
        "instruction": str(sample["instruction"]),
        "columns": columns,
        "box": 0,
        "solution": sample["solution"],
        "states": sample["states"],
        "pictures": {name: _checked_png(pictures[name]) for name in PICTURES},
        "steps": [_checked_png(step) for step in steps],
    }


def _checked_text(sample: dict[str, Any]) -> dict[str, Any]:
    """Characters as the player takes them, MASK being symbol 0."""
    states, symbols = sample["states"], sample["symbols"]
    if not isinstance(symbols, str) or not states or not states[0]:
        raise ValueError(f"a text needs symbols and states, got symbols {symbols!r}")
    for state in states:
        if len(state) != len(states[0]) or not all(
            type(c) is int and 0 <= c < len(symbols) for c in state
        ):
            raise ValueError(f"sample {sample['sample_id']!r}: a state is symbols by number")
    return {
        "id": str(sample["sample_id"]),
        "note": str(sample.get("note") or ""),
        "columns": min(TEXT_COLUMNS, len(states[0])),
        "box": 0,
        "symbols": symbols,
        "solution": None,
        "states": states,
    }


def _checked_png(text: str) -> str:
    """A PNG file in base64, and nothing else."""
    if not base64.b64decode(text, validate=True).startswith(PNG):
        raise ValueError("a picture is no PNG file")
    return text


CHECKS = {"sudoku": _checked_board, "image_edit": _checked_edit, "countdown": _checked_text}
"""By kind of suite: what makes a showcase's sample what the page takes, or raises."""


def _damaged(path: str, reason: str) -> ValueError:
    return ValueError(f"{path} is damaged: {reason}; run `remask eval` again")
