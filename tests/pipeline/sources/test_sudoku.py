"""Sudoku boards and the rules of the game."""

import numpy as np
import pytest

from remask.pipeline.sources.sudoku import (
    SudokuSource,
    all_boards,
    conflict_cells,
    is_valid,
    orbit_invariant,
    parse_board,
    random_boards,
    random_images,
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
    found = list(solutions(puzzle))
    assert len(found) == 1
    assert (found[0] == solved).all()


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
def test_what_is_no_board_is_refused(text):
    with pytest.raises(ValueError, match="board"):
        parse_board(text)


def test_only_small_boards_can_be_listed():
    with pytest.raises(ValueError, match="only 4×4 boards can be listed, got side 9"):
        all_boards(9)


# The source --------------------------------------------------------------------------------------


def images_by_hand(board, rng):
    """A symmetric image by one random operation after another, each written out."""
    grid = board.reshape(9, 9).copy()
    digits = rng.permutation(9) + 1
    grid = digits[grid - 1]
    for axis in (0, 1):
        bands = rng.permutation(3)
        lines = [3 * band + i for band in bands for i in rng.permutation(3)]
        grid = np.take(grid, lines, axis)
    return (grid.T if rng.random() < 0.5 else np.rot90(grid)).ravel()


def test_images_are_solved_and_share_the_invariant():
    rng = np.random.default_rng(0)
    boards = random_boards(12, 9, rng)
    images = random_images(boards, rng)
    by_hand = np.stack([images_by_hand(board, rng) for board in boards])
    assert is_valid(images).all()
    assert is_valid(by_hand).all()
    assert (images != boards).any(1).all()
    assert np.array_equal(orbit_invariant(images), orbit_invariant(boards))
    assert np.array_equal(orbit_invariant(by_hand), orbit_invariant(boards))


def test_the_invariant_tells_most_boards_apart():
    boards = random_boards(60, 9, np.random.default_rng(1))
    assert len(np.unique(orbit_invariant(boards), axis=0)) >= 58


def test_no_image_of_a_held_out_board_is_in_training():
    source = SudokuSource(train=60, held_out=40, images=4)
    rng = np.random.default_rng(0)
    train = source.examples("train", 0, 60, rng).target
    held_out = source.examples("held_out", 0, 40, rng).target
    assert is_valid(train).all()
    assert is_valid(held_out).all()
    assert (train.shape, held_out.shape) == ((60, 81), (40, 81))
    seen = {key.tobytes() for key in orbit_invariant(train)}
    kept = {key.tobytes() for key in orbit_invariant(random_images(held_out, rng))}
    assert not seen & kept


def test_small_boards_are_split_one_by_one():
    source = SudokuSource(side=4, train=3000, held_out=1000)
    rng = np.random.default_rng(0)
    train = source.examples("train", 0, 3000, rng).target
    held_out = source.examples("held_out", 0, 1000, rng).target
    seen, kept = ({board.tobytes() for board in boards} for boards in (train, held_out))
    assert not seen & kept
    assert len(seen) + len(kept) == 288


def test_boards_come_from_a_file_as_they_are(tmp_path):
    boards = random_boards(30, 9, np.random.default_rng(2))
    path = tmp_path / "boards.txt"
    path.write_text("\n".join("".join(map(str, board)) for board in boards.tolist()) + "\n\n")
    source = SudokuSource(file=str(path), held_out_share=0.4)
    rng = np.random.default_rng(0)
    assert source.num_records() == {"train": 30, "held_out": 30}
    parts = [
        source.examples(split, first, 10, rng).target
        for split in ("train", "held_out")
        for first in (0, 10, 20)
    ]
    found = np.concatenate(parts)
    assert {b.tobytes() for b in found} == {b.tobytes() for b in boards}
    bad = tmp_path / "bad.txt"
    good = "".join(map(str, boards[0]))
    bad.write_text(f"{good}\n\n{'1' * 81}\n12x4\n")
    with pytest.raises(
        ValueError, match=r"bad.txt: 2 of 3 lines are no boards: line 3: .*; line 4: .*'12x4'"
    ):
        SudokuSource(file=str(bad)).examples("train", 0, 1, rng)
    with pytest.raises(ValueError, match="cannot read .*none.txt: No such file"):
        SudokuSource(file=str(tmp_path / "none.txt")).examples("train", 0, 1, rng)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"side": 16}, "side must be 4 or 9, got 16"),
        ({"train": 0, "held_out": 0}, "need boards in some split"),
        ({"images": 0}, "images must be at least 1"),
        ({"held_out_share": 0.001}, r"held_out_share must lie in \[0.01, 0.99\], got 0.001"),
    ],
)
def test_bad_sources_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuSource(**settings)
