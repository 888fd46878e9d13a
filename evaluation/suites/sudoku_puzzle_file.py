"""Sudoku puzzles from a file: JSON lines, or lines of digits. Each must have exactly one solution.

    {"puzzle": "0000008...", "solution": "4713829...", "difficulty": 2.5, "level": "Medium"}
    ......8.2...64.07.

All but the puzzle is optional.
"""

import functools
import json
from dataclasses import dataclass
from typing import Any

from remask.pipeline.runtime.storage import read_file
from remask.pipeline.sources.sudoku_puzzles import unique_solution
from remask.pipeline.sources.sudoku_rules import Boards, parse_board

MAX_DIFFICULTY = 1_000_000
MAX_LEVELS = 20
"""Limit on the levels of a file, each of which has a metric of its own."""
MAX_LEVEL_LENGTH = 40
"""Limit on the characters of a level's name, which is part of a metric's name."""


@dataclass(frozen=True)
class Puzzle:
    """Clues and the only board that fits them."""

    clues: Boards
    """[N], 0 at blanks."""
    solution: Boards
    """[N]."""
    difficulty: float | None = None
    """The file's own rating."""
    level: str | None = None
    """The file's own name for a range of ratings."""


def count_puzzles(path: str) -> int:
    """Number of lines that are not empty."""
    return len(_lines(path))


@functools.lru_cache(maxsize=4)
def read_puzzles(path: str, side: int, first: int, count: int | None) -> tuple[Puzzle, ...]:
    """Puzzles first .. first+count-1 of a file, or all from `first` on.

    Raises:
        ValueError: The file cannot be read, or one of these lines is not a puzzle with exactly one
            solution.
    """
    puzzles = []
    for number, line in _lines(path)[first:][:count]:
        try:
            puzzles.append(_parse(line.strip(), side))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from error
    levels = {puzzle.level for puzzle in puzzles}
    if len(levels) > MAX_LEVELS:
        raise ValueError(f"{path} has {len(levels)} levels, more than {MAX_LEVELS}")
    return tuple(puzzles)


def _lines(path: str) -> list[tuple[int, str]]:
    """Lines that are not empty, with their numbers."""
    try:
        lines = read_file(path).decode().split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file of puzzles: {error}") from error
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _parse(line: str, side: int) -> Puzzle:
    row = _json_object(line) if line.startswith("{") else {"puzzle": line}
    clues = _board(row, "puzzle", side)
    try:
        solution = unique_solution(clues)
    except ValueError as error:
        raise ValueError(f"puzzle {row['puzzle']!r}: {error}") from error
    if clues.all():
        raise ValueError(f"puzzle {row['puzzle']!r} has no blank cell")
    if row.get("solution") is not None and (_board(row, "solution", side) != solution).any():
        digits = "".join(map(str, solution.tolist()))
        raise ValueError(f"solution {row['solution']!r} is not the puzzle's, which is {digits}")
    return Puzzle(clues, solution, _difficulty(row), _level(row))


def _json_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{_short(line)} is not JSON: {error}") from error
    return row  # a line that starts with { is an object


def _board(row: dict[str, Any], name: str, side: int) -> Boards:
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text of {side**2} digits, got {_short(value)}")
    if len(value.strip()) != side**2:
        raise ValueError(f"{name} must have {side**2} digits, got {_short(value)}")
    return parse_board(value)


def _difficulty(row: dict[str, Any]) -> float | None:
    value = row.get("difficulty")
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= MAX_DIFFICULTY:
        raise ValueError(
            f"difficulty must be a number up to {MAX_DIFFICULTY:,}, got {_short(value)}"
        )
    return float(value)


def _level(row: dict[str, Any]) -> str | None:
    value = row.get("level")
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or len(value) > MAX_LEVEL_LENGTH
        or not any(x.isalnum() for x in value)
    ):
        raise ValueError(
            f"level must be a name of at most {MAX_LEVEL_LENGTH} characters, got {_short(value)}"
        )
    return value


def _short(value: Any) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
