"""Symmetries of Sudoku: random images of a board, and numbers that all its images share."""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from remask.pipeline.sources.sudoku_rules import Boards

Value = TypeVar("Value", bound=np.generic)


@dataclass(frozen=True)
class Symmetries:
    """A symmetry of Sudoku for each of B boards: digits are renamed, rows are permuted within bands
    and bands among themselves, columns likewise, and some boards are transposed."""

    names: Boards
    """New digit of each digit, [B, side]."""
    rows: NDArray[np.int64]
    """Old row of each row, [B, side]."""
    columns: NDArray[np.int64]
    """Old column of each column, [B, side]."""
    is_transposed: NDArray[np.bool_]
    """[B]."""

    @classmethod
    def draw(cls, count: int, side: int, rng: np.random.Generator) -> "Symmetries":
        """Uniform draws."""
        names = np.argsort(rng.random((count, side)), axis=1).astype(np.uint8) + 1
        rows, columns = (_random_lines(count, side, rng) for _ in range(2))
        return cls(names, rows, columns, rng.random(count) < 0.5)

    def images(self, boards: Boards) -> Boards:
        """The image of each solved board, [B, N]."""
        return self.moved(np.take_along_axis(self.names, boards.astype(np.int64) - 1, 1))

    def moved(self, values: NDArray[Value]) -> NDArray[Value]:
        """Values of cells, such as which of them are clues, at the cells' new places, [B, N]."""
        count, side = self.rows.shape
        grid = values.reshape(count, side, side)
        grid = np.take_along_axis(grid, self.rows[:, :, None], 1)
        grid = np.take_along_axis(grid, self.columns[:, None, :], 2)
        flip = self.is_transposed[:, None, None]
        return np.where(flip, grid.transpose(0, 2, 1), grid).reshape(values.shape)


def random_images(boards: Boards, rng: np.random.Generator) -> Boards:
    """A random symmetric image of each solved board, [B, N]."""
    return Symmetries.draw(len(boards), math.isqrt(boards.shape[1]), rng).images(boards)


def orbit_invariant(boards: Boards) -> Boards:
    """Numbers that all symmetric images of a board share, [B, K] uint8.

    Two digits a and b define a permutation of the columns: in every row, from a's column to b's.
    Permuting rows does not change it and permuting columns conjugates it, so its cycle type is
    invariant; over all pairs of digits the types form a multiset that renaming digits only
    reorders. Transposing swaps this multiset with the one for rows, so the two are sorted.
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
    column_of = np.argsort(grid, axis=2, kind="stable")  # [B, row, digit] → column
    pairs = [(a, b) for a in range(side) for b in range(a)]
    start, end = np.array(pairs).T
    step = np.zeros((count, len(pairs), side), np.int64)  # column of a → column of b
    np.put_along_axis(
        step,
        column_of[:, :, start].transpose(0, 2, 1),
        column_of[:, :, end].transpose(0, 2, 1),
        axis=2,
    )
    # The numbers of columns that return after 1, 2, ... steps determine the lengths of all cycles.
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
