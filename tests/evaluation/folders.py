"""Small evaluation folders as `remask eval` leaves them, made by hand."""

import json

import polars as pl

from remask.evaluation.stats.tables import SCORES

SOLUTION = [int(c) for c in "1234341221434321"]


def board(**cells):
    """The 4×4 solution with some cells changed: board(c0=3, c5=0)."""
    changed = list(SOLUTION)
    for name, digit in cells.items():
        changed[int(name[1:])] = digit
    return changed


STATES = [
    board(c0=3, c5=1, c9=3),  # three wrong
    board(c0=0, c5=0, c9=3),  # two re-masked
    board(c0=1, c5=2, c9=0),  # one revealed right, one wrong, the third re-masked
    board(c5=0, c9=0),  # the wrong one re-masked, the third still masked
    board(),
]


def score(metric="exact", value=0.9, **columns):
    """A row of scores.parquet."""
    row = {
        "suite": "sudoku",
        "suite_kind": "sudoku",
        "suite_version": 1,
        "checkpoint": "her",
        "member": 0,
        "fingerprint": "abc",
        "decoder": "rm",
        "metric": metric,
        "by": None,
        "at": None,
        "value": value,
        "low": value - 0.01,
        "high": value + 0.01,
        "count": 1000,
        "unit": "share",
        "better": "higher",
    }
    assert set(columns) <= set(row)
    return row | columns


def explained(suite, scores):
    """The scores, after a check that the glossary explains each metric or its prefix."""
    for score in scores:
        parts = (score.metric.startswith(f"{name}_") for name in suite.glossary)
        assert score.metric in suite.glossary or any(parts), f"{score.metric} is not explained"
    return scores


def frame(*rows):
    return pl.DataFrame(list(rows), schema=SCORES)


def sample(sample_id="board 7", states=STATES, note="fixed, 3 wrong cells"):
    side = int(len(SOLUTION) ** 0.5)
    return {
        "sample_id": sample_id,
        "side": side,
        "solution": SOLUTION,
        "states": states,
        "note": note,
    }


def entry(checkpoint="her", samples=None, **values):
    """An element of showcase.json."""
    return {
        "suite": "sudoku",
        "checkpoint": checkpoint,
        "decoder": "rm",
        "kind": "sudoku",
        "samples": [sample()] if samples is None else samples,
    } | values


def make_folder(path, scores=None, showcase=None, tables=(), checkpoint="her"):
    """Write the three files and return the folder as text."""
    path.mkdir(parents=True, exist_ok=True)
    if scores is None:
        scores = frame(
            score(checkpoint=checkpoint),
            score("conflicts", 0.236, checkpoint=checkpoint, unit="number", better="lower"),
            *(
                score(value=0.2 * k, checkpoint=checkpoint, by="forward passes", at=k)
                for k in range(1, 5)
            ),
        )
    scores.write_parquet(path / "scores.parquet")
    run = {
        "suite": "sudoku",
        "checkpoint": checkpoint,
        "member": 0,
        "decoder": "rm",
        "path": "runs/her/model",
        "fingerprint": "abc",
        "parameters": 811_264,
        "samples": 1000,
        "forward_passes": 5120,
        "settings": {"max_steps": 32},
        "suite_settings": {"boards": 1000},
        "history": {"decay": 0.9},
    }
    evaluation = {
        "recipe": {"output": "runs/eval", "tables": list(tables)},
        "provenance": {"python": "3.11.7", "versions": {"torch": "2.13.0"}, "commit": "d060423"},
        "runs": [run],
    }
    (path / "evaluation.json").write_text(json.dumps(evaluation))
    shown = [entry(checkpoint)] if showcase is None else showcase
    (path / "showcase.json").write_text(json.dumps(shown))
    return str(path)
