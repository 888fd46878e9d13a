"""Solved Sudoku boards, and the rules of the game.

A board is `side²` digits in reading order, 0 for a blank; digits are the tokens of
`models/backbones/sudoku.py`.
"""

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from remask.pipeline.format.rows import Examples, Vocabulary, hash_share
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute, file_hash, read_file

Boards = NDArray[np.integer]

BAD_LINES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class SudokuSource:
    """Solved boards, every cell editable.

    No held-out 9×9 board is a symmetric image of a training board: boards are assigned to a split
    by numbers that all images of a board share. All 4×4 boards are images of two, so those are
    assigned one by one.
    """

    kind: Literal["sudoku"] = "sudoku"
    side: int = 9
    train: int = 10_000
    """Training boards to make; all the file holds when it is given."""
    held_out: int = 1_000
    images: int = 16
    """Random symmetric images taken of each 9×9 board that is filled from scratch."""
    held_out_share: float = 0.2
    """Share of all boards that is kept from training."""
    file: str | None = field(default=None, metadata=PLACE)
    """Take solved boards from this file instead, a line of digits each, as they are."""

    def __post_init__(self) -> None:
        if self.side not in (4, 9):
            raise ValueError(f"side must be 4 or 9, got {self.side}")
        if self.train < 0 or self.held_out < 0 or self.train + self.held_out == 0:
            raise ValueError(f"need boards in some split, got {self.train} and {self.held_out}")
        if self.images < 1:
            raise ValueError(f"images must be at least 1, got {self.images}")
        if not 0.01 <= self.held_out_share <= 0.99:
            raise ValueError(f"held_out_share must lie in [0.01, 0.99], got {self.held_out_share}")

    def tokenizer_hash(self) -> str:
        return "digits"

    def data_hash(self) -> str | None:
        """Of the file's bytes; none when boards are made."""
        return None if self.file is None else file_hash(self.file)

    def with_absolute_paths(self) -> "SudokuSource":
        return replace(self, file=absolute(self.file))

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.side + 1, mask_id=0)

    def num_records(self) -> dict[str, int]:
        """Boards to make for each split, or to look through in the file."""
        if self.file is not None:
            return dict.fromkeys(("train", "held_out"), len(read_boards(self.file, self.side)))
        return {"train": self.train, "held_out": self.held_out}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Boards first .. first+count-1 of a split; a function of the arguments alone."""
        boards = self._boards(split, first, count, rng)
        return Examples(
            example_ids=[f"sudoku{self.side}-{split}-{first + i:09d}" for i in range(len(boards))],
            target=boards,
            editable=np.ones(boards.shape, np.bool_),
            lengths=np.full(len(boards), self.side**2),
            prompt_lengths=np.zeros(len(boards), np.int32),
            vocabulary=self.vocabulary(),
        )

    def _boards(self, split: str, first: int, count: int, rng: np.random.Generator) -> Boards:
        wants_held_out = split == "held_out"
        if self.file is not None:
            boards = read_boards(self.file, self.side)[first : first + count]
            return boards[self._is_held_out(boards) == wants_held_out]
        if self.side == 4:
            boards = _small_boards(self.held_out_share, wants_held_out)
            return boards[rng.integers(0, len(boards), count)]
        found: list[Boards] = []
        missing = count
        while missing > 0:
            board = random_boards(1, self.side, rng)
            if self._is_held_out(board)[0] == wants_held_out:
                found.append(random_images(np.repeat(board, min(missing, self.images), 0), rng))
                missing -= len(found[-1])
        return np.concatenate([*found, np.zeros((0, self.side**2), np.uint8)])

    def _is_held_out(self, boards: Boards) -> NDArray[np.bool_]:
        return _shares(boards) < self.held_out_share


def solutions(board: Boards, rng: np.random.Generator | None = None) -> Iterator[Boards]:
    """All ways to fill a board's blanks, [N] each; in random order when rng is given."""
    if conflict_cells(board[None]).any():
        return
    side = math.isqrt(board.size)
    rows, columns, boxes = _units(side).tolist()
    cells = board.tolist()
    used = [0] * 3 * side  # bit d of a row, column or box: digit d stands there
    places = [(r, side + c, 2 * side + b) for r, c, b in zip(rows, columns, boxes, strict=True)]
    for place, digit in zip(places, cells, strict=True):
        for unit in place:
            used[unit] |= (1 << digit) & ~1
    order = random.Random(int(rng.integers(2**63))) if rng is not None else None
    blanks = {i for i, digit in enumerate(cells) if digit == 0}
    for filled in _fill(cells, blanks, used, places, side, order):
        yield np.array(filled, np.uint8)


@functools.cache
def all_boards(side: int = 4) -> Boards:
    """Every solved board, [288, 16] for 4×4. Larger sides have too many to list."""
    if side != 4:
        raise ValueError(f"only 4×4 boards can be listed, got side {side}; use random_boards")
    return np.stack(list(solutions(np.zeros(side**2, np.uint8))))


@functools.cache
def _small_boards(held_out_share: float, is_held_out: bool) -> Boards:
    """The 4×4 boards of a split."""
    boards = all_boards(4)
    return boards[(_shares(boards) < held_out_share) == is_held_out]


def _shares(boards: Boards) -> NDArray[np.floating]:
    """A number in [0, 1) for each board, which decides its split; 9×9 images share theirs."""
    keys = boards if boards.shape[1] == 16 else orbit_invariant(boards)
    return np.array([hash_share(key.tobytes()) for key in keys.astype(np.uint8)])


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
    cells: list[int],
    blanks: set[int],
    used: list[int],
    places: list[tuple[int, int, int]],
    side: int,
    order: random.Random | None,
) -> Iterator[list[int]]:
    if not blanks:
        yield cells
        return
    most, cell, taken = -1, -1, 0
    for blank in blanks:  # the most constrained blank first
        r, c, b = places[blank]
        bits = used[r] | used[c] | used[b]
        if bits.bit_count() > most:
            most, cell, taken = bits.bit_count(), blank, bits
    digits = [d for d in range(1, side + 1) if not taken >> d & 1]
    if order is not None:
        order.shuffle(digits)
    blanks.remove(cell)
    for digit in digits:
        cells[cell] = digit
        for unit in places[cell]:
            used[unit] ^= 1 << digit
        yield from _fill(cells, blanks, used, places, side, order)
        for unit in places[cell]:
            used[unit] ^= 1 << digit
    cells[cell] = 0
    blanks.add(cell)


def random_images(boards: Boards, rng: np.random.Generator) -> Boards:
    """A random symmetric image of each board, [B, N]: digits renamed, rows permuted within bands
    and bands among themselves, columns likewise, half of them transposed."""
    count, cells = boards.shape
    side = math.isqrt(cells)
    names = np.argsort(rng.random((count, side)), axis=1).astype(boards.dtype) + 1
    rows, columns = (_random_lines(count, side, rng) for _ in range(2))
    grid = np.take_along_axis(names, boards.astype(np.int64) - 1, 1).reshape(count, side, side)
    grid = np.take_along_axis(grid, rows[:, :, None], 1)
    grid = np.take_along_axis(grid, columns[:, None, :], 2)
    flip = rng.random(count) < 0.5
    return np.where(flip[:, None, None], grid.transpose(0, 2, 1), grid).reshape(count, cells)


def orbit_invariant(boards: Boards) -> Boards:
    """Numbers that all symmetric images of a board share, [B, K] uint8.

    Two digits a and b define a permutation of the columns: in every row, from a's column to b's.
    Permuting rows leaves it alone and permuting columns conjugates it, so its cycle type stays;
    over all pairs of digits the types are a multiset that renaming digits only reorders.
    Transposing swaps it with the one for rows, and the two are taken in order.
    """
    count, cells = boards.shape
    side = math.isqrt(cells)
    grid = boards.reshape(count, side, side)
    by_columns, by_rows = (_cycle_types(g) for g in (grid, grid.transpose(0, 2, 1)))
    swap = np.array([a.tobytes() > b.tobytes() for a, b in zip(by_columns, by_rows, strict=True)])
    first = np.where(swap[:, None], by_rows, by_columns)
    second = np.where(swap[:, None], by_columns, by_rows)
    return np.concatenate([first, second], 1)


def _cycle_types(grid: Boards) -> Boards:
    """For each board, the sorted codes of all digit pairs' cycle types, [B, pairs] uint8."""
    count, side, _ = grid.shape
    place = np.argsort(grid, axis=2, kind="stable")  # [B, row, digit] → column
    pairs = [(a, b) for a in range(side) for b in range(a)]
    start, end = np.array(pairs).T
    step = np.zeros((count, len(pairs), side), np.int64)  # column of a → column of b
    np.put_along_axis(
        step, place[:, :, start].transpose(0, 2, 1), place[:, :, end].transpose(0, 2, 1), axis=2
    )
    # How many columns return after 1, 2, ... steps tells the lengths of all cycles.
    code = np.zeros((count, len(pairs)), np.int64)
    now = step
    for _ in range(side // 2):
        now = np.take_along_axis(step, now, 2)
        code = code * (side + 1) + (now == np.arange(side)).sum(2)
    return np.sort(code % 251, axis=1).astype(np.uint8)


def _random_lines(count: int, side: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Permutations of rows that keep bands together, [count, side]."""
    box = math.isqrt(side)
    bands = np.argsort(rng.random((count, box)), axis=1)[:, :, None]
    within = np.argsort(rng.random((count, box, box)), axis=2)
    return (bands * box + within).reshape(count, side)


@functools.lru_cache(maxsize=2)
def read_boards(path: str, side: int) -> Boards:
    """The solved boards of a file, a line of digits each, [B, N]; bad lines are named."""
    data = read_file(path)
    try:
        lines = [(n, x) for n, x in enumerate(data.decode().splitlines(), 1) if x.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file of boards: {error}") from error
    boards, bad = [], []
    for number, line in lines:
        try:
            board = parse_board(line)
            if board.size != side**2 or not is_valid(board[None])[0]:
                raise ValueError(f"{line.strip()!r} is not a solved {side}×{side} board")
            boards.append(board)
        except ValueError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        shown = "; ".join(bad[:BAD_LINES_SHOWN])
        more = f"; and {len(bad) - BAD_LINES_SHOWN} more" if len(bad) > BAD_LINES_SHOWN else ""
        raise ValueError(f"{path}: {len(bad)} of {len(lines)} lines are no boards: {shown}{more}")
    if not boards:
        raise ValueError(f"{path} holds no boards")
    return np.stack(boards)


def _units(side: int) -> Boards:
    """Row, column and box of each cell, [3, side²]."""
    box = math.isqrt(side)
    row, column = np.divmod(np.arange(side**2), side)
    return np.stack([row, column, row // box * box + column // box])
