"""Puzzles to solve from their clues: samples, files, metrics on decodes made by hand."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
import torch

from remask.evaluation.decode.paths import Paths
from remask.evaluation.decoder import Decoder
from remask.evaluation.suites.sudoku_puzzles import SudokuPuzzlesSuite
from remask.models import HistoryConfig, SudokuConfig, SudokuMDM, load
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.sudoku_rules import solutions
from tests.evaluation.folders import explained
from tests.places import SHARED

SOLUTION = "1234341221434321"
PUZZLE = "1...3..2..4.4..1"
GENERATED = SudokuPuzzlesSuite(side=4, puzzles=6, clues=(5, 7), seed=3)
TEST_SET = SHARED / "sudoku" / "kaggle3m_curated_5000.jsonl"


def digits(text):
    return [int(x) for x in text.replace(".", "0")]


def predictions(*paths, difficulty=None, level=None):
    """A table of decodes of the puzzle through the given boards."""
    arrays = [np.array([digits(board) for board in (PUZZLE, *path)], np.uint8) for path in paths]
    solution = np.array(digits(SOLUTION), np.uint8).tobytes()
    return pa.table(
        {
            "sample_id": [str(i) for i in range(len(paths))],
            "solution": [solution] * len(paths),
            "start": [x[0].tobytes() for x in arrays],
            "states": [x.tobytes() for x in arrays],
            "forward_passes": [len(x) - 1 for x in arrays],
            "difficulty": pa.array(difficulty or [None] * len(paths), pa.float64()),
            "level": pa.array(level or [None] * len(paths), pa.string()),
        }
    )


def scores(table):
    scored = explained(GENERATED, GENERATED.score(table))
    return {s.metric: s.value for s in scored if s.by is None}


def curve(table, by):
    return {s.at: (s.value, s.count) for s in GENERATED.score(table) if s.by == by}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)
    return SudokuMDM(config, HistoryConfig(decay=0.5)).eval()


@pytest.fixture
def puzzle_file(tmp_path):
    """Three puzzles with one solution each, in both forms."""
    (second,) = solutions(np.array(digits("12..3....1.....4"), np.uint8))
    rated = {"puzzle": PUZZLE, "solution": SOLUTION, "difficulty": 2.5, "level": "Hard"}
    bare = {"puzzle": "12..3....1.....4", "difficulty": 1, "clues": "any other field"}
    path = tmp_path / "puzzles.jsonl"
    path.write_text(f"{json.dumps(rated)}\n\n{json.dumps(bare)}\r\n{SOLUTION[:15]}.\n")
    return str(path), second


@pytest.mark.parametrize("suite", [GENERATED, SudokuPuzzlesSuite(puzzles=6, clues=(24, 30))])
def test_generated_puzzles_are_held_out_and_have_one_solution(suite):
    for i in range(suite.num_samples):
        puzzle = suite.sample(i)
        assert [x.tolist() for x in solutions(puzzle.clues)] == [puzzle.solution.tolist()]
        assert suite.clues[0] <= (puzzle.clues > 0).sum() <= suite.clues[1]
        assert SudokuSource(side=suite.side)._is_held_out(puzzle.solution[None]).all()


def test_a_puzzle_depends_on_seed_and_number_alone():
    more, other = (dataclasses.replace(GENERATED, **x) for x in ({"puzzles": 30}, {"seed": 4}))
    for i in range(6):
        assert (GENERATED.sample(i).clues == more.sample(i).clues).all()
    assert any((GENERATED.sample(i).clues != other.sample(i).clues).any() for i in range(6))


def test_decoding_starts_from_the_clues_and_keeps_them(model):
    boards = Paths.read(GENERATED.predict(model, range(6), Decoder(max_steps=4)))
    clues = np.stack([GENERATED.sample(i).clues for i in range(6)])
    np.testing.assert_array_equal(boards.start, clues)
    np.testing.assert_array_equal(boards.states[0], clues)
    for state in boards.states:
        np.testing.assert_array_equal(state[clues > 0], clues[clues > 0])
    assert (boards.final > 0).all()


def test_predictions_do_not_depend_on_the_chunks(model):
    decoder = Decoder(policy="p2", max_steps=3, seed=1)
    whole = GENERATED.predict(model, range(6), decoder)
    small = dataclasses.replace(decoder, batch_size=2)
    parts = [GENERATED.predict(model, range(i, i + 3), small) for i in (0, 3)]
    assert pa.concat_tables(parts).equals(whole)


def test_only_the_given_start_fits_a_puzzle():
    assert GENERATED.adapt(Decoder()) == Decoder()
    with pytest.raises(ValueError, match="decoder start oracle is for boards with wrong cells"):
        GENERATED.adapt(Decoder(start="oracle"))


def test_outcomes_are_counted():
    wrong = "1432341221434321"  # 4 and 2 exchanged in the first row, which clashes below
    table = predictions(
        ["1234341221434320", SOLUTION],  # a clue blanked by hand counts as re-masked
        [wrong, "1.3.341221434321", wrong],
    )
    out = scores(table)
    assert out["solved"] == out["valid"] == 0.5
    assert out["right_cells"] == pytest.approx((10 + 8) / 20)
    assert out["conflicts"] == 2.0
    assert out["replay"] == 1.0
    assert out["revealed"] == pytest.approx((10 + 1 + 10 + 2) / 2)
    assert out["remasked"] == pytest.approx((1 + 2) / 2)
    assert out["oscillating"] == 0
    assert out["forward_passes"] == 2.5


def test_solved_is_reported_by_clues_difficulty_level_and_passes():
    wrong = SOLUTION.replace("2", "4")
    table = predictions(
        [SOLUTION],
        [wrong, SOLUTION],
        [wrong],
        [wrong],
        difficulty=[1.0, 2.9, 2.0, None],
        level=["Easy", "Very hard", "Very hard", None],
    )
    assert curve(table, "clues") == {6: (0.5, 4)}
    assert curve(table, "difficulty") == {1: (1.0, 1), 2: (0.5, 2)}
    assert curve(table, "forward passes") == {0: (0, 4), 1: (0.25, 4), 2: (0.5, 4)}
    out = scores(table)
    assert {k: x for k, x in out.items() if k.startswith("solved_")} == {
        "solved_easy": 1.0,
        "solved_very_hard": 0.5,
    }
    unrated = scores(predictions([SOLUTION]))
    assert not any(name.startswith("solved_") for name in unrated)


def test_puzzles_come_from_a_file(puzzle_file, model):
    path, second = puzzle_file
    suite = SudokuPuzzlesSuite(side=4, file=path)
    assert suite.num_samples == 3
    first = suite.sample(0)
    assert first.clues.tolist() == digits(PUZZLE)
    assert first.solution.tolist() == digits(SOLUTION)
    assert (first.difficulty, first.level) == (2.5, "Hard")
    assert suite.sample(1).solution.tolist() == second.tolist()
    assert (suite.sample(1).difficulty, suite.sample(1).level) == (1.0, None)
    assert suite.sample(2).solution.tolist() == digits(SOLUTION)
    table = suite.predict(model, range(3), Decoder(max_steps=2))
    assert table["difficulty"].to_pylist() == [2.5, 1.0, None]
    last = dataclasses.replace(suite, first=1, puzzles=2)
    assert (last.sample(0).clues == suite.sample(1).clues).all()
    assert dataclasses.replace(suite, first=2).num_samples == 1
    names = last.predict(model, range(2), Decoder(max_steps=2))["sample_id"].to_pylist()
    assert names == ["puzzle4-file-000001", "puzzle4-file-000002"]
    with pytest.raises(ValueError, match="has 3 puzzles, 4 are needed"):
        _ = dataclasses.replace(suite, first=2, puzzles=2).num_samples


def test_a_file_counts_by_its_contents(puzzle_file, tmp_path):
    suite = SudokuPuzzlesSuite(side=4, file=puzzle_file[0])
    moved = tmp_path / "elsewhere.txt"
    with open(puzzle_file[0], "rb") as file:
        moved.write_bytes(file.read())
    same = dataclasses.replace(suite, file=str(moved))
    assert same.identity() == suite.identity()
    moved.write_text(PUZZLE)
    assert same.identity() != suite.identity()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("12x4............", r"bad.txt: line 2: .*'12x4"),
        ("1234", r"line 2: puzzle must have 16 digits, got '1234'"),
        ("9...............", "line 2: a 4×4 board has digits 1 to 4; got 9"),
        ("11..............", "line 2: puzzle '11.*': a digit occurs twice"),
        ("1...............", "line 2: puzzle '1.*': the clues have several solutions"),
        ("123............4", "line 2: puzzle '123.*': the clues have no solution"),
        (SOLUTION, f"line 2: puzzle '{SOLUTION}' has no blank cell"),
        ("[1, 2]", r"line 2: puzzle must have 16 digits, got '\[1, 2\]'"),
        ('{"puzzle": ', r"line 2: '\{\"puzzle\": *' is not JSON"),
        ('{"a":' * 100_000, "line 2: "),
        ('{"solution": "1"}', "line 2: puzzle must be a text of 16 digits, got None"),
        ({"puzzle": 5}, "line 2: puzzle must be a text of 16 digits, got 5"),
        ({"solution": "1" * 16}, "line 2: solution '1.*' is not the puzzle's, which is 1234"),
        ({"difficulty": "hard"}, "line 2: difficulty must be a number up to 1,000,000, got 'hard'"),
        ({"difficulty": True}, "line 2: difficulty must be a number up to 1,000,000, got True"),
        (
            {"difficulty": float("nan")},
            "line 2: difficulty must be a number up to 1,000,000, got nan",
        ),
        ({"difficulty": 10**400}, "line 2: difficulty must be a number up to 1,000,000, got 1000"),
        ({"level": 3}, "line 2: level must be a name of at most 40 characters, got 3"),
        ({"level": "x" * 41}, "line 2: level must be a name of at most 40 characters, got 'xxx"),
        ({"level": "--"}, "line 2: level must be a name .*got '--'"),
    ],
)
def test_a_line_that_is_not_a_puzzle_is_named(line, message, tmp_path):
    text = json.dumps({"puzzle": PUZZLE} | line) if isinstance(line, dict) else line
    path = tmp_path / "bad.txt"
    path.write_text(f"{PUZZLE}\n{text}\n")
    suite = SudokuPuzzlesSuite(side=4, file=str(path))
    with pytest.raises(ValueError, match=message) as raised:
        suite.sample(0)
    assert len(str(raised.value)) < 400 + len(str(path))


def test_files_that_are_not_puzzles_are_refused(tmp_path):
    path = tmp_path / "bad.txt"
    suite = SudokuPuzzlesSuite(side=4, file=str(path))
    with pytest.raises(ValueError, match="cannot read .*bad.txt: No such file"):
        _ = suite.num_samples
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="bad.txt is not a text file of puzzles"):
        _ = suite.num_samples
    path.write_text("\n \n")
    with pytest.raises(ValueError, match="has 0 puzzles, 1 are needed"):
        _ = suite.num_samples
    rows = [{"puzzle": PUZZLE, "level": f"level {i}"} for i in range(21)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="bad.txt has 21 levels, more than 20"):
        suite.sample(0)


def test_the_showcase_says_what_was_given():
    wrong = SOLUTION.replace("2", "4")
    table = predictions([SOLUTION], [wrong], level=["Easy", None])
    samples = GENERATED.showcase(table)
    assert [x["note"] for x in samples] == ["6 clues, Easy, solved", "6 clues, not solved"]
    player = GENERATED.player_sample(samples[0])
    assert (player.columns, player.box) == (4, 2)
    assert player.states == [digits(PUZZLE), digits(SOLUTION)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"puzzles": 0}, "puzzles must be at least 1, got 0"),
        ({"clues": (30, 22)}, "clues must be 0 <= low <= high < 81, got 30, 22"),
        ({"first": 5}, "first is for puzzles of a file, got 5 without a file"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuPuzzlesSuite(**settings)


def test_models_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match="the suite has 9×9 boards, the model is for 4×4"):
        SudokuPuzzlesSuite().check(model)


def test_the_shipped_model_solves_easy_puzzles():
    suite = SudokuPuzzlesSuite(puzzles=12, clues=(62, 66))
    decoder = Decoder(max_steps=16, settings={"reveal_within": 0.5})
    table = suite.predict(load("sudoku"), range(12), decoder)
    values = {s.metric: s.value for s in suite.score(table) if s.by is None}
    assert values["solved"] > 0.8


@pytest.mark.skipif(not TEST_SET.exists(), reason=f"{TEST_SET} is not there")
def test_published_puzzles_are_read_with_their_levels():
    suite = SudokuPuzzlesSuite(file=str(TEST_SET), first=990, puzzles=20)
    drawn = [suite.sample(i) for i in range(20)]
    assert {x.level for x in drawn} == {"Beginner", "Easy"}
    assert all(x.difficulty is not None and x.difficulty < 3 for x in drawn)
    assert dataclasses.replace(suite, puzzles=None).num_samples == 4010
