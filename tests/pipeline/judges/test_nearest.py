"""The nearest valid boards: against all 4×4 boards, and against a search cell by cell on 9×9."""

import re

import numpy as np
import pytest

from remask.pipeline.judges.nearest import Nearest, digit_templates, nearest_boards
from remask.pipeline.sources.sudoku_rules import (
    all_boards,
    conflict_cells,
    parse_board,
    random_boards,
)

# Board, distance and count, from a branch and bound over cells that shares nothing with ours.
KNOWN = {
    "two at five cells": (
        "461875932792136845538429167624357613873414258615298374287563491156942783849781526",
        Nearest(5, 2),
    ),
    "one wrong cell less than was changed": (
        "322719855851832441371458932783564129124953566596821743417296758238145697965381214",
        Nearest(10, 1),
    ),
    "two wrong cells less than were changed": (
        "973842366824163197537937824637271638763485672152638749471359286255186873368754957",
        Nearest(16, 1),
    ),
    "three nearer than the solution": (
        "786796314465781952218875486652811543938547261171632899826315973174278635357964128",
        Nearest(19, 3),
    ),
    "eight as near as the solution": (
        "965117683725335631538946974852373816361184297479612457695231748243738169187462325",
        Nearest(18, 8),
    ),
    "twenty cells and one answer": (
        "258941631944361528385428979526193847417655392892742165642289143732366487589777216",
        Nearest(20, 1),
    ),
}


def by_listing(board):
    """The answer on 4×4 from the list of all 288 valid boards."""
    distances = (all_boards(4) != board).sum(1)
    return Nearest(int(distances.min()), int((distances == distances.min()).sum()))


def changed(board, count, rng):
    side = int(board.max())
    cells = rng.choice(board.size, count, replace=False)
    out = board.copy()
    out[cells] = (out[cells] - 1 + rng.integers(1, side, count)) % side + 1
    return out


@pytest.mark.parametrize("wrong", range(17))
def test_small_boards_agree_with_the_list_of_all(wrong):
    rng = np.random.default_rng(wrong)
    for solution in all_boards(4)[rng.integers(0, 288, 40)]:
        board = changed(solution, wrong, rng)
        assert nearest_boards(board, max_distance=16) == by_listing(board), board


def test_boards_of_random_digits_agree_with_the_list_of_all():
    rng = np.random.default_rng(0)
    for board in rng.integers(1, 5, (300, 16)):
        assert nearest_boards(board, max_distance=16) == by_listing(board), board


def test_a_board_of_one_digit_is_equally_near_to_all():
    assert nearest_boards(np.ones(16, np.uint8), max_distance=16) == Nearest(12, 288)


@pytest.mark.parametrize(("line", "nearest"), KNOWN.values(), ids=KNOWN.keys())
def test_large_boards_agree_with_a_search_cell_by_cell(line, nearest):
    assert nearest_boards(parse_board(line), max_distance=20) == nearest


@pytest.mark.parametrize(("line", "nearest"), KNOWN.values(), ids=KNOWN.keys())
def test_the_search_ends_at_its_limit(line, nearest):
    board = parse_board(line)
    assert nearest_boards(board, max_distance=nearest.distance) == nearest
    assert nearest_boards(board, max_distance=nearest.distance - 1) is None


@pytest.mark.parametrize("side", [4, 9])
def test_a_valid_board_is_its_own_nearest(side):
    for board in random_boards(10, side, np.random.default_rng(0)):
        assert nearest_boards(board, max_distance=0) == Nearest(0, 1)


def test_one_wrong_cell_of_a_large_board_has_one_answer():
    rng = np.random.default_rng(0)
    for board in random_boards(10, 9, rng):  # valid 9×9 boards differ in at least four cells
        assert nearest_boards(changed(board, 1, rng), max_distance=9) == Nearest(1, 1)


def test_symmetric_images_of_a_board_have_the_same_answer():
    line, nearest = KNOWN["three nearer than the solution"]
    grid = parse_board(line).reshape(9, 9)
    for image in (grid.T, grid[::-1], grid[:, [1, 0, 2, 6, 8, 7, 3, 4, 5]], 10 - grid):
        assert nearest_boards(image.ravel(), max_distance=20) == nearest


@pytest.mark.parametrize(("side", "count"), [(4, 16), (9, 46656)])
def test_templates_are_all_ways_to_place_a_digit(side, count):
    columns = digit_templates(side)
    assert columns.shape == (count, side)
    assert len(np.unique(columns, axis=0)) == count
    boards = np.zeros((count, side, side), np.uint8)
    np.put_along_axis(boards, columns[:, :, None], 1, 2)
    assert not conflict_cells(boards.reshape(count, -1)).any()


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        (np.ones(15, np.uint8), "16 or 81 cells in one row, got shape [15]"),
        (np.ones((4, 4), np.uint8), "16 or 81 cells in one row, got shape [4, 4]"),
        (np.zeros(16, np.uint8), "digits 1 to 4, got 0 to 0"),
        (np.full(16, 5, np.uint8), "digits 1 to 4, got 5 to 5"),
    ],
)
def test_an_incomplete_board_is_refused(board, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        nearest_boards(board, max_distance=4)
