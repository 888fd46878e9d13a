"""Decoded Sudoku boards for the report: which ones are shown, and how the player takes them."""

import math
from typing import Any

import numpy as np

from remask.evaluation.decode.paths import Paths
from remask.evaluation.player import PlayerSample
from remask.pipeline.sources.sudoku_rules import is_valid

SHOWN = 8
"""Number of boards in the showcase."""


def busiest(boards: Paths) -> list[int]:
    """The boards with the most re-masks: half of them solved, half of them not."""
    order = np.argsort(-boards.remasks().sum((0, 2)), kind="stable")
    exact = boards.exact(boards.final)
    solved, unsolved = order[exact[order]], order[~exact[order]]
    return [*solved[: SHOWN // 2].tolist(), *unsolved[: SHOWN // 2].tolist()]


def shown(boards: Paths, row: int, note: str) -> dict[str, Any]:
    """A board of the showcase; the note says what was given."""
    final, solution = boards.final[row], boards.solution[row]
    outcome = "another valid board" if is_valid(final[None])[0] else "not solved"
    if (final == solution).all():
        outcome = "solved"
    return {
        "sample_id": boards.sample_ids[row],
        "side": math.isqrt(solution.size),
        "solution": solution.tolist(),
        "states": boards.states[: boards.steps[row] + 1, row].tolist(),
        "note": f"{note}, {outcome}",
    }


def player_board(sample: dict[str, Any]) -> PlayerSample:
    """What `shown` gave, read back from disk.

    Raises:
        KeyError, TypeError, ValueError: The sample is not what `shown` gave.
    """
    side, states = sample["side"], sample["states"]
    if not isinstance(side, int) or side < 1:
        raise ValueError(f"a board needs a side, got {side!r}")
    for board in (sample["solution"], *states):
        if len(board) != side**2 or max(board) > side:
            raise ValueError(f"sample {sample['sample_id']!r}: a board is {side**2} digits")
    box = math.isqrt(side)
    return PlayerSample(
        sample_id=str(sample["sample_id"]),
        note=str(sample.get("note") or ""),
        columns=side,
        box=box if box * box == side else side,
        solution=sample["solution"],
        states=states,
    )
