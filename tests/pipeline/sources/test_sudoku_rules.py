"""The rules of Sudoku: conflicts, solutions, and boards as text."""

import numpy as np
import pytest

from remask.pipeline.sources.sudoku_rules import (
    all_boards,
    conflict_cells,
    is_valid,
    parse_board,
    random_boards,
    solutions,
)

SOLVED = "417369825632158947958724316825437169791586432346912758289643571573291684164875293"


def obeys_rules(board):
    """Every row, column and box holds every digit, by sets."""
    side = int(len(board) ** 0.5)
    box = int(side**0.5)
    grid = np.array(board).reshape(side, side)
    boxes = [
        grid[r : r + box, c : c + box].ravel()
        for r in range(0, side, box)
        for c in range(0, side, box)
    ]
    return all(set(unit) == set(range(1, side + 1)) for unit in [*grid, *grid.T, *boxes])


def test_there_are_288_boards_of_4x4():
    boards = all_boards(4)
    assert len(np.unique(boards, axis=0)) == len(boards) == 288
    assert all(obeys_rules(board) for board in boards.tolist())


@pytest.mark.parametrize("side", [4, 9])
def test_random_boards_are_solved_and_differ(side):
    boards = random_boards(8, side, np.random.default_rng(0))
    assert all(obeys_rules(board) for board in boards.tolist())
    assert is_valid(boards).all()
    assert len(np.unique(boards, axis=0)) > 5
    assert random_boards(0, side, np.random.default_rng(0)).shape == (0, side**2)


def test_a_puzzle_with_one_solution_is_solved():
    solved = parse_board(SOLVED)
    puzzle = np.where(np.arange(81) % 4 == 0, 0, solved)
    (solution,) = solutions(puzzle)
    assert (solution == solved).all()


def test_a_board_that_breaks_a_rule_has_no_solution():
    board = parse_board(SOLVED).copy()
    board[0] = board[1]
    assert list(solutions(board)) == []


def test_conflicts_are_the_cells_that_break_a_rule():
    board = parse_board(SOLVED).copy()
    assert not conflict_cells(board[None]).any()
    board[0] = (
        1  # 4 becomes a second 1 in its row, and in its box: none there; column has one below
    )
    same = {i for i, d in enumerate(board.tolist()) if d == 1 and i != 0}
    seen = {i for i in same if i // 9 == 0 or i % 9 == 0 or (i // 9 < 3 and i % 9 < 3)}
    assert set(np.flatnonzero(conflict_cells(board[None])[0]).tolist()) == seen | {0}
    assert not is_valid(board[None]).any()
    board[0] = 0
    assert not conflict_cells(board[None]).any(), "a blank breaks no rule"
    assert not is_valid(board[None]).any(), "but a board with a blank is not solved"


def test_boards_are_read_from_text():
    assert parse_board("12.4341221.34321").tolist() == [int(c) for c in "1204341221034321"]


@pytest.mark.parametrize("text", ["", "123", "12x4341221034321", "9" * 16, "1" * 80, "١" * 16])
def test_text_that_is_not_a_board_is_refused(text):
    with pytest.raises(ValueError, match="board"):
        parse_board(text)


def test_only_small_boards_can_be_listed():
    with pytest.raises(ValueError, match="only 4×4 boards can be listed, got side 9"):
        all_boards(9)
