"""The rules of Sudoku: conflicts, solutions, and boards as text.

A board is `side²` digits in reading order, 0 for a blank; digits are the tokens of
`models/backbones/sudoku.py`.
"""

import functools
import math
import random
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Boards = NDArray[np.integer]


def conflict_cells(boards: Boards) -> NDArray[np.bool_]:
    """Cells whose digit occurs twice in their row, column or box, bool [B, N]; never blanks."""
    side = math.isqrt(boards.shape[-1])
    conflicts = np.zeros(boards.shape, np.bool_)
    for unit in cell_units(side):
        peers = np.argsort(unit, kind="stable").reshape(side, side)  # cells of each unit
        digits = boards[:, peers]  # [B, side, side]
        same = digits[..., :, None] == digits[..., None, :]
        conflicts[:, peers] |= (same.sum(-1) > 1) & (digits > 0)
    return conflicts


def is_valid(boards: Boards) -> NDArray[np.bool_]:
    """Are the boards full and without conflict? Bool [B]."""
    return np.logical_and((boards > 0).all(-1), ~conflict_cells(boards).any(-1))


def parse_board(line: str) -> Boards:
    """Parse digits in reading order, 0 or . for a blank, to a board [N] uint8."""
    text = line.strip().replace(".", "0")
    side = math.isqrt(len(text))
    if (
        not (text.isascii() and text.isdigit())
        or side**2 != len(text)
        or math.isqrt(side) ** 2 != side
        or side < 4
    ):
        raise ValueError(f"a board is 81 or 16 digits, 0 or . for a blank; got {line.strip()!r}")
    board = np.frombuffer(text.encode(), np.uint8) - ord("0")
    if board.max() > side:
        raise ValueError(
            f"a {side}×{side} board has digits 1 to {side}; got {board.max()} in {line.strip()!r}"
        )
    return board


def solutions(board: Boards, rng: np.random.Generator | None = None) -> Iterator[Boards]:
    """All ways to fill a board's blanks, [N] each; in random order if rng is given."""
    if conflict_cells(board[None]).any():
        return
    side = math.isqrt(board.size)
    rows, columns, boxes = cell_units(side).tolist()
    cells = board.tolist()
    used = [0] * 3 * side  # bit d of a row, column or box: it contains digit d
    units_of = [(r, side + c, 2 * side + b) for r, c, b in zip(rows, columns, boxes, strict=True)]
    for units, digit in zip(units_of, cells, strict=True):
        for unit in units:
            used[unit] |= (1 << digit) & ~1
    order = random.Random(int(rng.integers(2**63))) if rng is not None else None
    blanks = {i for i, digit in enumerate(cells) if digit == 0}
    for filled in _fill(cells, blanks, used, units_of, side, order):
        yield np.array(filled, np.uint8)


@functools.cache
def all_boards(side: int = 4) -> Boards:
    """Every solved board, [288, 16] for 4×4. Larger sides have too many to list."""
    if side != 4:
        raise ValueError(f"only 4×4 boards can be listed, got side {side}; use random_boards")
    return np.stack(list(solutions(np.zeros(side**2, np.uint8))))


def random_boards(count: int, side: int, rng: np.random.Generator) -> Boards:
    """Solved boards filled at random, [count, side²] uint8."""
    blank = np.zeros(side**2, np.uint8)
    return np.stack([next(solutions(blank, rng)) for _ in range(count)] or [blank])[:count]


def _fill(
    cells: list[int],
    blanks: set[int],
    used: list[int],
    units_of: list[tuple[int, int, int]],
    side: int,
    order: random.Random | None,
) -> Iterator[list[int]]:
    """Backtrack over the blanks, the most constrained one first."""
    if not blanks:
        yield cells
        return
    num_taken, cell, taken = -1, -1, 0
    for blank in blanks:
        r, c, b = units_of[blank]
        bits = used[r] | used[c] | used[b]
        if bits.bit_count() > num_taken:
            num_taken, cell, taken = bits.bit_count(), blank, bits
    digits = [d for d in range(1, side + 1) if not taken >> d & 1]
    if order is not None:
        order.shuffle(digits)
    blanks.remove(cell)
    for digit in digits:
        cells[cell] = digit
        for unit in units_of[cell]:
            used[unit] ^= 1 << digit
        yield from _fill(cells, blanks, used, units_of, side, order)
        for unit in units_of[cell]:
            used[unit] ^= 1 << digit
    cells[cell] = 0
    blanks.add(cell)


def cell_units(side: int) -> Boards:
    """Row, column and box of each cell, [3, side²]."""
    box = math.isqrt(side)
    row, column = np.divmod(np.arange(side**2), side)
    return np.stack([row, column, row // box * box + column // box])
