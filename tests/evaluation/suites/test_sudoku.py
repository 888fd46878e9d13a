"""The Sudoku suite: metrics on decodes made by hand, and its samples."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import torch

from remask.evaluation.decode.paths import Paths, replays
from remask.evaluation.decoder import Decoder
from remask.evaluation.suites.sudoku import SudokuSuite, mask_beliefs
from remask.models import HistoryConfig, LladaConfig, LladaMDM, SudokuConfig, SudokuMDM, load
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.sudoku_rules import all_boards, is_valid
from tests.evaluation.folders import explained

SOLUTION = [int(c) for c in "1234341221434321"]
SMALL = SudokuSuite(side=4, boards=20, wrong=(1, 4))


def board(**cells):
    changed = list(SOLUTION)
    for name, digit in cells.items():
        changed[int(name[1:])] = digit
    return changed


def predictions(*paths, beliefs=None):
    """A table of decodes through the given boards; the first of a path is the given one."""
    arrays = [np.array(path, np.uint8) for path in paths]
    return pa.table(
        {
            "sample_id": [str(i) for i in range(len(paths))],
            "solution": [np.array(SOLUTION, np.uint8).tobytes()] * len(paths),
            "start": [x[0].tobytes() for x in arrays],
            "states": [x.tobytes() for x in arrays],
            "forward_passes": [len(x) - 1 for x in arrays],
            "mask_beliefs": pa.array(
                [None if beliefs is None else np.array(b, np.float16).tobytes() for b in beliefs]
                if beliefs is not None
                else [None] * len(paths),
                pa.binary(),
            ),
        }
    )


def scores(table):
    return {s.metric: s for s in explained(SMALL, SMALL.score(table)) if s.by is None}


def curve(table, metric, by):
    return {s.at: s.value for s in SMALL.score(table) if (s.metric, s.by) == (metric, by)}


def test_a_fixed_board_is_exact_and_valid():
    out = scores(predictions([board(c0=3), board(c0=0), board()]))
    assert [out[m].value for m in ("exact", "valid", "replay", "conflicts")] == [1, 1, 0, 0]
    assert out["exact"].count == 1
    assert out["exact"].low < 1 == out["exact"].high


def test_another_valid_board_is_valid_but_not_exact():
    swapped = [{1: 2, 2: 1}.get(d, d) for d in SOLUTION]
    out = scores(predictions([swapped]))
    assert (out["exact"].value, out["valid"].value, out["conflicts"].value) == (0, 1, 0)
    assert out["as_near"].value == 1  # it is the given board itself
    far = scores(predictions([board(c0=3), swapped]))
    assert (far["valid"].value, far["as_near"].value) == (1, 0)


def test_conflicts_count_every_cell_that_breaks_a_rule():
    out = scores(predictions([board(c0=2)]))
    # The 2 at cell 0 meets those of its row (cell 1, also its box) and its column (cell 8).
    assert (out["exact"].value, out["valid"].value, out["conflicts"].value) == (0, 0, 3)


def test_replay_counts_wrong_cells_revealed_as_before():
    table = predictions(
        [
            board(c0=3, c5=1, c9=3),
            board(c0=0, c5=0, c9=0),  # three wrong cells re-masked
            board(c0=3, c5=3, c9=1),  # 0 replays; 5 is wrong in a new way; 9 is right
            board(c0=3, c5=0, c9=0),
            board(c0=3, c5=1, c9=1),  # 5 replays its first mistake; 9, re-masked right, returns
        ]
    )
    remasked, replayed = replays(Paths.read(table))
    assert remasked[0].nonzero()[0].tolist() == [0, 5, 9]
    assert replayed[0].nonzero()[0].tolist() == [0, 5]
    assert scores(table)["replay"].value == pytest.approx(2 / 3)


def test_what_revision_did_is_counted_per_board():
    table = predictions(
        [board(c0=3, c5=1), board(c0=0, c15=0), board(c5=1, c15=2), board(c5=0), board(c15=2)],
        [board(c1=1)],
    )
    out = scores(table)
    values = {m: out[m].value for m in ("fixed", "broken", "remasked", "revealed", "oscillating")}
    # First board: 0 and 5 fixed, 15 broken; re-masked 0, 15, then 5; 15 hidden once only.
    assert values == {
        "fixed": 1.0, "broken": 0.5, "remasked": 1.5, "revealed": 1.5, "oscillating": 0.0,
    }  # fmt: skip
    twice = scores(predictions([board(c0=3), board(c0=0), board(c0=3), board(c0=0), board()]))
    assert twice["oscillating"].value == 1.0


def test_the_first_remask_is_scored_against_what_is_wrong():
    path = [board(c0=3, c5=1), board(c0=0, c5=1, c7=0, c8=0), board()]
    out = scores(predictions(path, beliefs=[[0.0] * 16]))
    assert out["first_remask_precision"].value == pytest.approx(1 / 3)
    assert out["first_remask_recall"].value == pytest.approx(1 / 2)
    assert "first_remask_recall" not in scores(predictions(path))  # without beliefs


def test_calibration_compares_belief_with_what_is_wrong():
    beliefs = [[0.75, 0.75, 0.75, 0.75] + [0.0] * 12]
    table = predictions([board(c0=3, c1=3), board(c0=0), board()], beliefs=beliefs)
    out = scores(table)
    # Four cells believed wrong with 0.75, two are: off by 4 · 0.25 over 16 cells.
    assert out["mask_calibration_error"].value == pytest.approx(1 / 16)
    assert curve(table, "wrong_share", "p(MASK)") == {0.0: 0.0, 0.75: 0.5}


def test_curves_follow_passes_and_wrong_cells():
    table = predictions(
        [board(c0=3), board(c0=0), board()],
        [board(c0=3, c1=3), board(c0=0, c1=0), board(), board(c5=0), board()],
    )
    assert curve(table, "exact", "forward passes") == {0: 0, 1: 0, 2: 1, 3: 0.5, 4: 1}
    assert curve(table, "exact", "wrong cells") == {1: 1.0, 2: 1.0}


def test_small_boards_with_another_answer_are_counted():
    # Swapping 1 and 2 in a rectangle of four cells gives another valid board.
    target = all_boards(4)
    twin = next(b for b in target if 0 < (b != SOLUTION).sum() <= 4)
    half = list(SOLUTION)
    for cell in np.flatnonzero(twin != SOLUTION)[:2]:
        half[cell] = int(twin[cell])
    assert scores(predictions([half]))["ambiguous"].value == 1.0
    assert scores(predictions([board()]))["ambiguous"].value == 0.0


@pytest.mark.parametrize("side", [4, 9])
def test_a_sample_depends_on_seed_and_number_alone(side):
    suite = SudokuSuite(side=side, boards=3, wrong=(2, 5), seed=7)
    more = dataclasses.replace(suite, boards=30)
    for i in range(3):
        for a, b in zip(suite.sample(i), more.sample(i), strict=True):
            np.testing.assert_array_equal(a, b)
    other = dataclasses.replace(suite, seed=8)
    assert any((a != b).any() for a, b in zip(suite.sample(0), other.sample(0), strict=True))


def test_samples_are_held_out_boards_with_wrong_cells():
    suite = SudokuSuite(boards=20, wrong=(4, 6))
    drawn = [suite.sample(i) for i in range(20)]
    solutions = np.stack([s for s, _ in drawn])
    assert is_valid(solutions).all()
    assert SudokuSource()._is_held_out(solutions).all()
    wrong = [(s != t).sum() for s, t in drawn]
    assert set(wrong) == {4, 5, 6}
    assert all(((t >= 1) & (t <= 9)).all() for _, t in drawn)


def test_wrong_digits_are_uniform():
    suite = SudokuSuite(side=4, boards=400, wrong=(16, 16))
    shift = np.concatenate([np.subtract(*suite.sample(i), dtype=int) % 4 for i in range(400)])
    counts = np.bincount(shift, minlength=4)
    assert counts[0] == 0
    assert np.abs(counts[1:] / shift.size - 1 / 3).max() < 0.03


def test_balanced_suites_take_each_number_of_wrong_cells_in_turn():
    suite = SudokuSuite(side=4, boards=8, wrong=(1, 4), balanced=True)
    wrong = [int(np.not_equal(*suite.sample(i)).sum()) for i in range(8)]
    assert wrong == [1, 2, 3, 4, 1, 2, 3, 4]


def test_boards_come_from_a_file(tmp_path):
    path = tmp_path / "boards.txt"
    path.write_text("".join(map(str, SOLUTION)) + "\n")
    suite = SudokuSuite(side=4, file=str(path), wrong=(1, 1))
    assert suite.num_samples == 1
    assert suite.sample(0)[0].tolist() == SOLUTION
    with pytest.raises(ValueError, match="holds 1 boards, 2 are asked for"):
        _ = dataclasses.replace(suite, boards=2).num_samples
    moved = tmp_path / "same.txt"
    moved.write_bytes(path.read_bytes())
    assert dataclasses.replace(suite, file=str(moved)).identity() == suite.identity()


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)
    return SudokuMDM(config, HistoryConfig(decay=0.5)).eval()


@pytest.mark.parametrize(
    "decoder",
    [
        Decoder(max_steps=4),
        Decoder(policy="remdm", settings={"kind": "conf"}, max_steps=4, seed=3),
        Decoder(policy="p2", max_steps=3),
    ],
)
def test_predictions_do_not_depend_on_the_chunks(model, decoder):
    whole = SMALL.predict(model, range(10), decoder)
    small = dataclasses.replace(decoder, batch_size=2)
    parts = [SMALL.predict(model, range(i, i + 5), small) for i in (0, 5)]
    assert pa.concat_tables(parts).equals(whole)


def test_an_oracle_start_masks_what_is_wrong(model):
    decoder = Decoder(policy="absorbing", start="oracle", max_steps=4)
    boards = Paths.read(SMALL.predict(model, range(5), decoder))
    np.testing.assert_array_equal(boards.states[0] == 0, boards.start != boards.solution)
    kept = boards.start == boards.solution
    np.testing.assert_array_equal(boards.final[kept], boards.solution[kept])


def test_beliefs_are_the_model_own_probability_of_mask(model):
    solution = torch.tensor([SOLUTION])
    embeds = model.embed(solution)
    embeds = embeds / embeds.square().mean(-1, keepdim=True).add(1e-6).sqrt()
    expected = model.logits(embeds).softmax(-1)[..., 0].detach().numpy()
    np.testing.assert_allclose(mask_beliefs(model, solution, 4), expected, atol=1e-3)


def test_the_showcase_has_right_and_wrong_ends(model):
    table = predictions([board(c0=3), board(c0=0), board()], [board(c0=2)])
    shown = SMALL.showcase(table)
    assert [s["note"] for s in shown] == ["1 wrong cells, solved", "1 wrong cells, not solved"]
    assert shown[0]["states"] == [board(c0=3), board(c0=0), board()]


def test_models_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match="the suite has 9×9 boards, the model is for 4×4"):
        SudokuSuite().check(model)
    with torch.device("meta"):
        text = LladaMDM(LladaConfig())
    with pytest.raises(ValueError, match="needs a Sudoku model, got llada"):
        SudokuSuite().check(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"boards": 0}, "boards must be at least 1, got 0"),
        ({"wrong": (5, 4)}, "wrong must be 0 <= low <= high <= 81, got 5, 4"),
        ({"wrong": (0, 82)}, "got 0, 82"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuSuite(**settings)


def test_the_shipped_model_fixes_most_boards():
    suite = SudokuSuite(boards=60, wrong=(4, 14), seed=99)
    scores = suite.score(suite.predict(load("sudoku"), range(60), Decoder()))
    values = {s.metric: s.value for s in scores if s.by is None}
    assert values["exact"] > 0.85
    assert values["valid"] > 0.9
    assert values["first_remask_recall"] > 0.9
