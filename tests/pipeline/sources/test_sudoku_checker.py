"""Which boards are right, and which is nearest, beside the list of all 4×4 boards."""

import numpy as np
import pytest

from remask.pipeline.format.examples import Example
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.sudoku_rules import all_boards, random_boards, solutions


def example_of(board, *fixed):
    """An example whose cells are editable but for some."""
    editable = np.ones(board.size, np.bool_)
    editable[list(fixed)] = False
    return Example("board", board, editable, 0)


def nearest_by_hand(example, state, end):
    """The best of all fillings of the fixed cells, in the order of the solver."""
    fillings = list(solutions(np.where(example.editable, 0, example.target).astype(np.uint8)))

    def rank(number):
        row = fillings[number].tolist()
        changes = sum(a != b for a, b in zip(row, state.tolist(), strict=True) if b)
        away = sum(a != b for a, b in zip(row, end.tolist(), strict=True))
        return changes, away, row != example.target.tolist()

    ranks = [rank(i) for i in range(len(fillings))]
    return [fillings[i] for i, x in enumerate(ranks) if x == min(ranks)]


@pytest.mark.parametrize("seed", range(40))
def test_the_nearest_small_board_is_that_of_a_search_by_hand(seed):
    rng = np.random.default_rng(seed)
    board = all_boards(4)[rng.integers(288)]
    example = example_of(board, *rng.choice(16, seed % 5, replace=False))
    end = np.where(rng.random(16) < 0.3, rng.integers(1, 5, 16), board).astype(np.uint8)
    end = np.where(example.editable, end, board)
    state = np.where(example.editable & (rng.random(16) < 0.6), 0, end).astype(np.uint8)
    nearest = SudokuSource(side=4).checker().nearest(example, state, end)
    assert nearest.tolist() in [x.tolist() for x in nearest_by_hand(example, state, end)]


def test_a_tie_of_all_boards_goes_to_the_given_one():
    """Every valid board has four ones, so all are as far from sixteen of them."""
    checker, blank = SudokuSource(side=4).checker(), np.zeros(16, np.uint8)
    for board in all_boards(4):
        nearest = checker.nearest(example_of(board), blank, np.ones(16, np.uint8))
        assert np.array_equal(nearest, board)


@pytest.mark.parametrize("side", [4, 9])
def test_every_valid_board_with_the_fixed_cells_is_right(side):
    checker, rng = SudokuSource(side=side).checker(), np.random.default_rng(0)
    board, other = random_boards(2, side, rng)
    same = np.flatnonzero(board == other)
    differs = np.flatnonzero(board != other)
    assert min(len(same), len(differs)) > 0
    assert checker.is_right(example_of(board), board)
    assert checker.is_right(example_of(board), other)
    assert checker.is_right(example_of(board, *same), other)
    assert not checker.is_right(example_of(board, differs[0]), other)
    spoilt = other.copy()
    spoilt[differs[0]] = board[differs[0]]
    assert not checker.is_right(example_of(board), spoilt)


def test_large_boards_that_end_wrong_keep_the_given_target():
    board, other = random_boards(2, 9, np.random.default_rng(0))
    nearest = SudokuSource(side=9).checker().nearest(example_of(board), other, other)
    assert np.array_equal(nearest, board)
