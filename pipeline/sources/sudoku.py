"""Solved Sudoku boards, and the rules of the game.

A board is `side²` digits in reading order, 0 for a blank; digits are the tokens of
`models/sudoku.py`.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Boards = NDArray[np.integer]


def solutions(board: Boards, rng: np.random.Generator | None = None) -> Iterator[Boards]:
    """All ways to fill a board's blanks, [N] each; in random order when rng is given."""
    if conflict_cells(board[None]).any():
        return
    side = math.isqrt(board.size)
    units = _units(side)
    cells = board.astype(np.uint8)
    used = np.zeros((3, side), np.int64)  # bit d: digit d stands in this row, column, box
    for cell, digit in enumerate(cells.tolist()):
        if digit:
            used[range(3), units[:, cell]] |= 1 << digit
    yield from _fill(cells, used, units, side, rng)


def all_boards(side: int = 4) -> Boards:
    """Every solved board, [288, 16] for 4×4. Larger sides have too many to list."""
    if side != 4:
        raise ValueError(f"only 4×4 boards can be listed, got side {side}; use random_boards")
    return np.stack(list(solutions(np.zeros(side**2, np.uint8))))


def random_boards(count: int, side: int, rng: np.random.Generator) -> Boards:
    """Solved boards filled at random, [count, side²] uint8."""
    blank = np.zeros(side**2, np.uint8)
    return np.stack([next(solutions(blank, rng)) for _ in range(count)] or [blank])[:count]


def conflict_cells(boards: Boards) -> NDArray[np.bool_]:
    """Cells whose digit stands again in their row, column or box, bool [B, N]; never blanks."""
    side = math.isqrt(boards.shape[-1])
    conflicts = np.zeros(boards.shape, np.bool_)
    for unit in _units(side):
        peers = np.argsort(unit, kind="stable").reshape(side, side)  # cells of each unit
        digits = boards[:, peers]  # [B, side, side]
        same = digits[..., :, None] == digits[..., None, :]
        conflicts[:, peers] |= (same.sum(-1) > 1) & (digits > 0)
    return conflicts


def is_valid(boards: Boards) -> NDArray[np.bool_]:
    """Are the boards full and without conflict? Bool [B]."""
    return np.logical_and((boards > 0).all(-1), ~conflict_cells(boards).any(-1))


def parse_board(line: str) -> Boards:
    """Digits in reading order, 0 or . for a blank, to a board [N] uint8."""
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


def _fill(
    cells: Boards,
    used: NDArray[np.int64],
    units: Boards,
    side: int,
    rng: np.random.Generator | None,
) -> Iterator[Boards]:
    blanks = np.flatnonzero(cells == 0)
    if blanks.size == 0:
        yield cells.copy()
        return
    taken = used[0, units[0, blanks]] | used[1, units[1, blanks]] | used[2, units[2, blanks]]
    cell = int(blanks[np.bitwise_count(taken).argmax()])  # the most constrained blank first
    place = units[:, cell]
    digits = np.arange(1, side + 1) if rng is None else 1 + rng.permutation(side)
    for digit in digits.tolist():
        if not np.bitwise_or.reduce(used[range(3), place]) >> digit & 1:
            cells[cell] = digit
            used[range(3), place] |= 1 << digit
            yield from _fill(cells, used, units, side, rng)
            used[range(3), place] &= ~(1 << digit)
            cells[cell] = 0


def _units(side: int) -> Boards:
    """Row, column and box of each cell, [3, side²]."""
    box = math.isqrt(side)
    row, column = np.divmod(np.arange(side**2), side)
    return np.stack([row, column, row // box * box + column // box])
