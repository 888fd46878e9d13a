"""Sudoku puzzles: clues dug out of solved boards while the solution stays unique.

The solver looks at all cells at once: for each digit, the cells that can still hold it are the bits
of one integer. It fills in cells with a single digit left and digits with a single cell left in
their row, column or box, and guesses where neither is left.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remask.pipeline.sources.sudoku_rules import Boards, cell_units, conflict_cells

MAX_GUESSES = 100_000
"""Limit on the guesses at a puzzle of unknown origin, two seconds; the hardest of 5,000 published
ones takes 40 ms. Clues without a solution can take minutes."""


def dig_clues(
    boards: Boards, num_clues: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which cells of solved boards stay as the clues of a puzzle with one solution, bool [B, N].

    Cells are removed in random order, except those whose removal would allow another solution,
    until the number of clues drawn for the board is left. A board keeps more clues if no further
    cell can be removed.

    Args:
        boards: Solved boards, [B, N].
        num_clues: Range of the number of clues, which is drawn uniformly for each board.
        rng: Source of randomness.
    """
    low, high = num_clues
    is_clue = np.ones(boards.shape, np.bool_)
    for board, is_kept in zip(boards.tolist(), is_clue, strict=True):
        limit = len(board) - int(rng.integers(low, high + 1))
        is_kept[_dig(board, rng.permutation(len(board)).tolist(), limit)] = False
    return is_clue


def unique_solution(puzzle: Boards) -> Boards:
    """The only solution of a puzzle, [N] uint8.

    Raises:
        ValueError: The clues break a rule, have no solution or several, or take too many guesses.
    """
    if conflict_cells(puzzle[None]).any():
        raise ValueError("a digit occurs twice in a row, column or box")
    grid = _grid(math.isqrt(puzzle.size))
    places, filled = _possible_places(grid, puzzle.tolist())
    guesses = iter(range(MAX_GUESSES))
    solutions = list(itertools.islice(_solutions(grid, places, filled, guesses), 2))
    if len(solutions) != 1:
        raise ValueError(f"the clues have {'several solutions' if solutions else 'no solution'}")
    digits = [
        next(d for d, cells in enumerate(solutions[0], 1) if cells >> cell & 1)
        for cell in range(puzzle.size)
    ]
    return np.array(digits, np.uint8)


@dataclass(frozen=True)
class _Grid:
    """Sets of cells of a board of one size; bit i is cell i."""

    side: int
    every: int
    """All cells."""
    units: tuple[int, ...]
    """Rows, columns and boxes."""
    compatible: tuple[int, ...]
    """For each cell, the cells that may hold the same digit: itself and those outside its units."""


def _dig(board: Sequence[int], order: Sequence[int], limit: int) -> list[int]:
    """The cells of a solved board that can be removed one after another in this order, at most
    `limit`."""
    grid = _grid(math.isqrt(len(board)))
    clues = list(board)
    removed: list[int] = []
    for cell in order:
        if len(removed) == limit:
            break
        clues[cell] = 0
        places, filled = _possible_places(grid, clues)
        places[board[cell] - 1] &= ~(1 << cell)  # only another digit here is another solution
        if next(_solutions(grid, places, filled, itertools.count()), None) is None:
            removed.append(cell)
        else:
            clues[cell] = board[cell]
    return removed


def _possible_places(grid: _Grid, clues: Sequence[int]) -> tuple[list[int], int]:
    """For each digit, the cells that can hold it beside the clues; and the cells with a clue."""
    places, own = [grid.every] * grid.side, [0] * grid.side
    filled = 0
    for cell, digit in enumerate(clues):
        if digit:
            places[digit - 1] &= grid.compatible[cell]
            own[digit - 1] |= 1 << cell
            filled |= 1 << cell
    return [x & ~filled | y for x, y in zip(places, own, strict=True)], filled


def _solutions(
    grid: _Grid, places: list[int], filled: int, guesses: Iterator[int]
) -> Iterator[list[int]]:
    """All solutions, as the cells of each digit.

    Args:
        grid: Sets of cells.
        places: For each digit, the cells that can hold it. Changed in place.
        filled: Cells whose digit has been excluded from the rest of their units.
        guesses: Gives an item for every guess; ValueError when it has no more.
    """
    while True:
        once = twice = thrice = 0  # cells with at least one, two or three digits left
        for cells in places:
            thrice |= twice & cells
            twice |= once & cells
            once |= cells
        if once != grid.every:
            return
        single = once & ~twice & ~filled
        if single:
            _exclude(grid, places, single)
            filled |= single
        elif not twice:
            yield places
            return
        elif not _fill_hidden_singles(grid, places, twice):
            break
    fewest = twice & ~thrice or twice
    guessed = fewest & -fewest
    for digit, cells in enumerate(places):
        if cells & guessed:
            if next(guesses, None) is None:
                raise ValueError(f"the clues take more than {MAX_GUESSES:,} guesses to solve")
            branch = [x & ~guessed for x in places]
            branch[digit] = cells
            yield from _solutions(grid, branch, filled, guesses)


def _exclude(grid: _Grid, places: list[int], single: int) -> None:
    """Exclude the digit of each cell with a single one from the rest of the cell's units."""
    for digit, cells in enumerate(places):
        left = cells & single
        while left:
            cell = left & -left
            places[digit] &= grid.compatible[cell.bit_length() - 1]
            left ^= cell


def _fill_hidden_singles(grid: _Grid, places: list[int], blank: int) -> bool:
    """Give the blank cells that are a digit's only place in a unit that digit alone; false if
    there are none. A cell that is the only place of two digits is left with none."""
    hidden = [_hidden_singles(grid, cells, blank) for cells in places]
    for digit, cells in enumerate(hidden):
        if cells:
            for other in range(grid.side):
                if other != digit:
                    places[other] &= ~cells
    return any(hidden)


def _hidden_singles(grid: _Grid, places: int, blank: int) -> int:
    """The blank cells that are a digit's only place in a unit."""
    if not places & blank:
        return 0
    only = 0
    for unit in grid.units:
        in_unit = places & unit
        if not in_unit & (in_unit - 1):
            only |= in_unit
    return only & blank


@functools.cache
def _grid(side: int) -> _Grid:
    """The sets of cells of a board."""
    of_cell = cell_units(side).T.tolist()  # row, column and box of each cell
    units = [
        sum(1 << cell for cell, numbers in enumerate(of_cell) if numbers[kind] == number)
        for kind in range(3)
        for number in range(side)
    ]
    every = (1 << side**2) - 1
    compatible = []
    for cell in range(side**2):
        own = [unit for unit in units if unit >> cell & 1]
        compatible.append(every & ~(own[0] | own[1] | own[2]) | 1 << cell)
    return _Grid(side, every, tuple(units), tuple(compatible))
