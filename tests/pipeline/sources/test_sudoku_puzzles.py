"""Sudoku puzzles: one solution each, clues in range, images that move board and clues together."""

import itertools
import json

import numpy as np
import pytest

from remask.pipeline.plan import SOURCE_STAGE, example_units, make_plan, unit_rng
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.sources import sudoku_puzzles
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.sudoku_puzzles import dig_clues, unique_solution
from remask.pipeline.sources.sudoku_rules import (
    all_boards,
    is_valid,
    parse_board,
    random_boards,
    solutions,
)
from remask.pipeline.sources.sudoku_symmetry import orbit_invariant, random_images
from tests.places import ROOT, SHARED

TEST_SET = SHARED / "sudoku" / "kaggle3m_curated_5000.jsonl"


def first_two(puzzle):
    """Solutions of a puzzle by plain backtracking, two at most."""
    return [board.tolist() for board in itertools.islice(solutions(puzzle), 2)]


def puzzles(source, split, count, seed=0):
    """Boards of a source and the puzzles made of them."""
    rows = source.examples(split, 0, count, np.random.default_rng(seed))
    return rows.target, np.where(rows.editable, 0, rows.target)


@pytest.mark.parametrize(("side", "num_clues"), [(9, (22, 40)), (4, (4, 9))])
def test_dug_puzzles_have_their_board_as_the_only_solution(side, num_clues):
    rng = np.random.default_rng(0)
    boards = random_boards(30, side, rng)
    clues = dig_clues(boards, num_clues, rng)
    for board, is_clue in zip(boards, clues, strict=True):
        assert first_two(np.where(is_clue, board, 0)) == [board.tolist()]


def test_numbers_of_clues_are_uniform_over_the_range():
    boards = np.repeat(random_boards(1, 9, np.random.default_rng(0)), 300, 0)
    counts = dig_clues(boards, (40, 44), np.random.default_rng(1)).sum(1)
    numbers, frequency = np.unique(counts, return_counts=True)
    assert numbers.tolist() == [40, 41, 42, 43, 44]
    assert np.abs(frequency - 60).max() < 4 * np.sqrt(300 * 0.2 * 0.8)


@pytest.mark.parametrize("side", [4, 9])
def test_digging_ends_when_no_clue_can_be_removed(side):
    rng = np.random.default_rng(2)
    boards = random_boards(6, side, rng)
    for board, is_clue in zip(boards, dig_clues(boards, (0, 0), rng), strict=True):
        puzzle = np.where(is_clue, board, 0)
        assert first_two(puzzle) == [board.tolist()]
        for cell in np.flatnonzero(is_clue):
            fewer = puzzle.copy()
            fewer[cell] = 0
            assert len(first_two(fewer)) == 2


def test_all_clues_stay_where_all_are_asked_for():
    boards = random_boards(2, 9, np.random.default_rng(0))
    assert dig_clues(boards, (81, 81), np.random.default_rng(0)).all()


def test_solving_agrees_with_backtracking():
    rng = np.random.default_rng(3)
    outcomes = set()
    for board in all_boards(4)[rng.integers(0, 288, 200)]:
        puzzle = np.where(rng.random(16) < rng.uniform(0.1, 0.6), board, 0)
        if rng.random() < 0.3:
            puzzle[rng.integers(16)] = rng.integers(1, 5)
        expected = first_two(puzzle)
        outcomes.add(len(expected))
        if len(expected) == 1:
            assert unique_solution(puzzle).tolist() == expected[0]
        else:
            with pytest.raises(ValueError, match="solution|occurs twice"):
                unique_solution(puzzle)
    assert outcomes == {0, 1, 2}


def test_a_puzzle_that_takes_too_many_guesses_is_given_up(monkeypatch):
    hard = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
    assert is_valid(unique_solution(parse_board(hard))[None]).all()
    monkeypatch.setattr(sudoku_puzzles, "MAX_GUESSES", 20)
    with pytest.raises(ValueError, match="the clues take more than 20 guesses to solve"):
        unique_solution(parse_board(hard))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("11..............", "a digit occurs twice in a row, column or box"),
        ("123............4", "the clues have no solution"),
        ("1...............", "the clues have several solutions"),
    ],
)
def test_puzzles_without_exactly_one_solution_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        unique_solution(parse_board(text))


@pytest.mark.parametrize(("side", "clues"), [(9, (24, 32)), (4, (5, 8))])
def test_rows_are_puzzles_whose_clues_are_not_editable(side, clues):
    source = SudokuSource(side=side, train=12, held_out=6, images=4, clues=clues)
    for split, count in source.num_records().items():
        boards, given = puzzles(source, split, count)
        assert is_valid(boards).all()
        counts = (given > 0).sum(1)
        assert clues[0] <= counts.min()
        assert counts.max() <= clues[1]
        assert len(np.unique(given, axis=0)) > count // 2
        for board, puzzle in zip(boards, given, strict=True):
            assert first_two(puzzle) == [board.tolist()]


def test_images_of_one_puzzle_have_its_number_of_clues():
    source = SudokuSource(train=24, held_out=0, images=8, clues=(24, 60))
    boards, given = puzzles(source, "train", 24)
    counts = (given > 0).sum(1).reshape(3, 8)
    assert (counts == counts[:, :1]).all()
    assert len(np.unique(counts)) > 1
    assert len(np.unique(given > 0, axis=0)) == 24
    keys = orbit_invariant(boards).reshape(3, 8, -1)
    assert (keys == keys[:, :1]).all()


def test_puzzles_are_a_function_of_the_seed():
    source = SudokuSource(train=8, held_out=0, images=2, clues=(24, 30))
    first, again, other = (puzzles(source, "train", 8, seed)[1] for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_no_image_of_a_held_out_puzzle_is_in_training():
    source = SudokuSource(train=60, held_out=40, images=4, clues=(26, 34))
    train, held_out = (
        {key.tobytes() for key in orbit_invariant(puzzles(source, split, count)[0])}
        for split, count in source.num_records().items()
    )
    assert not train & held_out


def test_puzzles_are_dug_out_of_the_boards_of_a_file(tmp_path):
    boards = random_boards(6, 9, np.random.default_rng(2))
    path = tmp_path / "boards.txt"
    path.write_text("\n".join("".join(map(str, board)) for board in boards.tolist()))
    source = SudokuSource(file=str(path), clues=(30, 30))
    for split in ("train", "held_out"):
        targets, given = puzzles(source, split, 6)
        assert ((given > 0).sum(1) == 30).all()
        for board, puzzle in zip(targets, given, strict=True):
            assert first_two(puzzle) == [board.tolist()]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clues": (30, 22)}, "clues must be 0 <= low <= high < 81, got 30, 22"),
        ({"clues": (-1, 22)}, "got -1, 22"),
        ({"clues": (22, 81)}, "got 22, 81"),
        ({"side": 4, "clues": (4, 16)}, "clues must be 0 <= low <= high < 16, got 4, 16"),
    ],
)
def test_bad_numbers_of_clues_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuSource(**settings)


@pytest.mark.slow
@pytest.mark.skipif(not TEST_SET.exists(), reason=f"{TEST_SET} is not there")
def test_no_image_of_a_published_puzzle_is_in_the_recipe():
    """Boards that differ in an invariant are no images of each other. The invariant that splits
    boards is coarse and some share it by chance, so those are compared by a finer one."""
    published = np.stack(
        [parse_board(json.loads(line)["solution"]) for line in TEST_SET.read_text().splitlines()]
    )
    made = recipe_boards(ROOT / "pipeline" / "recipes" / "sudoku_puzzles.yaml")
    assert len(made) == 30_500
    coarse, known = ([x.tobytes() for x in orbit_invariant(boards)] for boards in (made, published))
    both = set(coarse) & set(known)
    assert both
    suspects, others = (
        {digit_pairs(board) for board, key in zip(boards, keys, strict=True) if key in both}
        for boards, keys in ((made, coarse), (published, known))
    )
    assert not suspects & others


def test_the_finer_invariant_is_shared_by_images_alone():
    rng = np.random.default_rng(0)
    boards = random_boards(300, 9, rng)
    keys = [digit_pairs(board) for board in boards]
    assert len(set(keys)) == 300
    assert [digit_pairs(board) for board in random_images(boards, rng)] == keys


def recipe_boards(path):
    """All boards of a build, as its source stage makes them."""
    plan = make_plan(load_recipe(BuildRecipe, path, []))
    return np.concatenate(
        [
            plan.recipe.source.examples(
                unit.split, unit.first, unit.count, unit_rng(plan, SOURCE_STAGE, unit)
            ).target
            for unit in example_units(plan.recipe)
        ]
    )


def digit_pairs(board):
    """For each digit, the cycle types that it forms with every other one: of the columns and of the
    rows where the two stand, taken together."""
    grid = board.reshape(9, 9)
    by_columns, by_rows = (pair_types(x) for x in (grid, grid.T))

    def merged(first, second):
        return sorted(
            sorted((first[a, b], second[a, b]) for b in range(9) if a != b) for a in range(9)
        )

    return str(min(merged(by_columns, by_rows), merged(by_rows, by_columns)))


def pair_types(grid):
    """Lengths of the cycles of "in the row where a stands here, b stands there", by a and b."""
    place = np.argsort(grid, 1).T  # [digit, row] → column
    row_of = np.argsort(place, 1)
    return {
        (a, b): cycle_lengths(place[b][row_of[a]].tolist())
        for a in range(9)
        for b in range(9)
        if a != b
    }


def cycle_lengths(permutation):
    seen, lengths = set(), []
    for start in range(len(permutation)):
        length, at = 0, start
        while at not in seen:
            seen.add(at)
            at, length = permutation[at], length + 1
        lengths.append(length)
    return sorted(filter(None, lengths))
