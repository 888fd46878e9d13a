"""Sudoku boards as examples: their split, generated or from a file."""

import hashlib

import numpy as np
import pytest

from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.sudoku_rules import is_valid, random_boards
from remask.pipeline.sources.sudoku_symmetry import orbit_invariant, random_images


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


@pytest.mark.parametrize(
    ("side", "split", "digest"),
    [
        (9, "train", "a92c3948e9f6f7c0"),
        (9, "held_out", "b53c97c4acd2af94"),
        (4, "train", "1bbc0f13c4d03303"),
        (4, "held_out", "c5c965b26c2b9e49"),
    ],
)
def test_boards_are_those_that_a_seed_always_gave(side, split, digest):
    rows = SudokuSource(side=side, images=16).examples(split, 0, 90, np.random.default_rng([5, 1]))
    content = rows.target.tobytes() + rows.editable.tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == digest


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
    read = np.concatenate(parts)
    assert {b.tobytes() for b in read} == {b.tobytes() for b in boards}
    bad = tmp_path / "bad.txt"
    good = "".join(map(str, boards[0]))
    bad.write_text(f"{good}\n\n{'1' * 81}\n12x4\n")
    with pytest.raises(
        ValueError, match=r"bad.txt: 2 of 3 lines are not boards: line 3: .*; line 4: .*'12x4'"
    ):
        SudokuSource(file=str(bad)).examples("train", 0, 1, rng)
    with pytest.raises(ValueError, match="cannot read .*none.txt: No such file"):
        SudokuSource(file=str(tmp_path / "none.txt")).examples("train", 0, 1, rng)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"side": 16}, r"side must be one of \[4, 9\], got 16"),
        ({"train": 0, "held_out": 0}, "train and held_out are both 0"),
        ({"images": 0}, "images must be at least 1"),
        ({"held_out_share": 0.001}, r"held_out_share must lie in \[0.01, 0.99\], got 0.001"),
    ],
)
def test_bad_sources_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuSource(**settings)
