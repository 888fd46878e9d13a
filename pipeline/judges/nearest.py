"""The number of valid Sudoku boards nearest to a board, and their distance, computed exactly.

A valid board is one template per digit: the cells of that digit, one in every row, column and box.
No two templates share a cell. The distance to a board is the sum, over digits, of the template's
cells in which the board has another digit. So the cheapest template of each digit gives a lower
bound, and only templates that cost little more can be part of a nearest board. On boards with 4 to
20 changed cells the bound is usually attained, and a search among the few remaining templates
decides.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remask.pipeline.sources.sudoku_rules import Boards


@dataclass(frozen=True)
class Nearest:
    """The least distance of a board to any valid board."""

    distance: int
    """Cells in which they differ."""
    count: int
    """Number of valid boards at that distance."""


def nearest_boards(board: Boards, max_distance: int) -> Nearest | None:
    """Find the least distance of a full board to a valid one; None if it exceeds `max_distance`.

    All boards at the least distance are visited, so the search is slow if there are many, as around
    a board of random digits; a tight `max_distance` avoids that.

    Args:
        board: Digits in reading order, [N]; conflicts are expected, blanks refused.
        max_distance: Limit of the search.
    """
    side = math.isqrt(board.size)
    if board.ndim != 1 or side not in (4, 9) or side**2 != board.size:
        raise ValueError(f"a board has 16 or 81 cells in one row, got shape {list(board.shape)}")
    if board.min() < 1 or board.max() > side:
        raise ValueError(f"a full board has digits 1 to {side}, got {board.min()} to {board.max()}")
    costs = _template_costs(board, side)
    cheapest = costs.min(1)
    bound = int(cheapest.sum())
    for distance in range(bound, max_distance + 1):
        spare = distance - bound
        count = _Search(costs, cheapest + spare, distance).count_boards()
        if count:
            return Nearest(distance, count)
    return None


@dataclass(frozen=True)
class Outlook:
    """What a perfect reviser can reach on a board, by answering with a nearest valid board."""

    wrong: int
    """Cells in which the board differs from its solution."""
    distance: int
    """Cells in which the board differs from the nearest valid board."""
    count: int
    """Number of valid boards at that distance."""

    @property
    def is_nearer(self) -> bool:
        """Is another valid board nearer than the solution?"""
        return self.distance < self.wrong

    @property
    def is_as_near(self) -> bool:
        """Is another valid board as near as the solution, and none nearer?"""
        return not self.is_nearer and self.count > 1

    @property
    def chance(self) -> float:
        """Probability that the best possible reviser gives the exact solution."""
        return 0.0 if self.is_nearer else 1 / self.count


def outlook(solution: Boards, start: Boards) -> Outlook:
    """The outlook of a board made from a solved one by changing cells, [N] each."""
    wrong = int((solution != start).sum())
    nearest = nearest_boards(start, max_distance=wrong)
    assert nearest is not None, "the solution itself is at that distance"
    return Outlook(wrong, nearest.distance, nearest.count)


@functools.cache
def digit_templates(side: int) -> NDArray[np.intp]:
    """All ways to place one digit, as its column in each row: [16, 4] or [46656, 9]."""
    box = math.isqrt(side)
    columns = np.zeros((1, 0), np.intp)
    for row in range(side):
        column = np.tile(np.arange(side), len(columns))
        columns = np.repeat(columns, side, 0)
        band = columns[:, row // box * box :]
        clash = (columns == column[:, None]).any(1)
        clash |= (band // box == column[:, None] // box).any(1)
        columns = np.concatenate([columns, column[:, None]], 1)[~clash]
    return columns


@functools.cache
def _band_codes(side: int) -> NDArray[np.intp]:
    """The columns of each band of rows as one number, [bands, templates]."""
    box = math.isqrt(side)
    bands = digit_templates(side).reshape(-1, box, box)
    return np.ascontiguousarray(bands.transpose(1, 0, 2) @ side ** np.arange(box)[::-1])


def _template_costs(board: Boards, side: int) -> NDArray[np.uint8]:
    """Number of cells of each template in which the board has another digit, [digits, templates].

    Costs are summed per band of rows first, because there are far fewer bands than templates.
    """
    box = math.isqrt(side)
    differs = board != np.arange(1, side + 1)[:, None]  # [digits, N]
    rows = differs.astype(np.uint8).reshape(side, box, box, side)
    costs = np.zeros((side, len(digit_templates(side))), np.uint8)
    for band, codes in enumerate(_band_codes(side)):
        by_code = np.zeros((side, 1), np.uint8)
        for row in range(box):
            by_code = (by_code[:, :, None] + rows[:, band, row][:, None, :]).reshape(side, -1)
        costs += by_code.take(codes, 1)
    return costs


class _Search:
    """Counts the choices of one template per digit without overlap whose costs sum to a total.

    A set of templates is an integer with one bit per template, ordered by digit and then by cost,
    so that the lowest bit of a set is its cheapest template. No choice may cost less than the
    total.
    """

    def __init__(self, costs: NDArray[np.uint8], limits: NDArray[np.integer], total: int) -> None:
        """Keep the templates of each digit that cost at most its limit, [digits]."""
        side = len(costs)
        self._total = total
        self._costs: list[int] = []
        self._cheap: list[list[int]] = []
        """For each digit and cost, the set of the digit's templates that cost at most that."""
        kept = []
        for of_digit, limit in zip(costs, limits, strict=True):
            ids = np.flatnonzero(of_digit <= limit)
            ids = ids[np.argsort(of_digit[ids], kind="stable")]
            first = len(self._costs)
            ends = first + np.searchsorted(of_digit[ids], np.arange(side + 1), side="right")
            self._cheap.append([(1 << end) - (1 << first) for end in ends.tolist()])
            self._costs += of_digit[ids].tolist()
            kept.append(ids)
        cells = digit_templates(side)[np.concatenate(kept)] + side * np.arange(side)
        self._cells: list[list[int]] = cells.tolist()
        self._at_cell = _sets_by_cell(cells)

    def count_boards(self) -> int:
        return self._count((1 << len(self._costs)) - 1, list(range(len(self._cheap))), 0)

    def _count(self, alive: int, digits: list[int], spent: int) -> int:
        """Number of ways to place the remaining digits with the remaining templates and budget."""
        options = self._affordable(alive, digits, self._total - spent)
        if not options:
            return 0
        sizes = [option.bit_count() for option in options]
        if len(digits) == 1:
            return sizes[0]
        fewest = sizes.index(min(sizes))
        others = digits[:fewest] + digits[fewest + 1 :]
        alive = functools.reduce(int.__or__, options)
        count, rest = 0, options[fewest]
        while rest:
            template = _lowest(rest)
            rest &= rest - 1
            clashes = 0
            for cell in self._cells[template]:
                clashes |= self._at_cell[cell]
            count += self._count(alive & ~clashes, others, spent + self._costs[template])
        return count

    def _affordable(self, alive: int, digits: list[int], budget: int) -> list[int]:
        """For each digit, the templates within the budget if the others take their cheapest.

        Empty if a digit has no such template.
        """
        options = [alive & self._cheap[digit][-1] for digit in digits]
        if not all(options):
            return []
        cheapest = [self._costs[_lowest(option)] for option in options]
        spare = budget - sum(cheapest)
        if spare < 0:
            return []
        max_cost = len(self._cheap)  # a template has as many cells as there are digits
        return [
            option & self._cheap[digit][min(cost + spare, max_cost)]
            for option, digit, cost in zip(options, digits, cheapest, strict=True)
        ]


def _lowest(items: int) -> int:
    """The lowest bit of a set that is not empty."""
    return (items & -items).bit_length() - 1


def _sets_by_cell(cells: NDArray[np.intp]) -> list[int]:
    """For each cell of a board, the set of templates that cover it; `cells` [templates, side]."""
    count, side = cells.shape
    covers = np.zeros((side**2, count), np.bool_)
    covers[cells.T, np.arange(count)] = True
    packed = np.packbits(covers, axis=1, bitorder="little")
    return [int.from_bytes(bits.tobytes(), "little") for bits in packed]
