"""The Sudoku model: its size, its two boards, and what its cells know of their place."""

import pytest
import torch

from models import SudokuConfig, SudokuMDM
from models.sudoku import cell_features


def test_size_is_the_papers():
    count = sum(p.numel() for p in SudokuMDM(SudokuConfig()).parameters())
    assert abs(count - 810_000) <= 20_000


@pytest.mark.parametrize("side", [4, 9])
def test_one_class_takes_both_boards(side):
    model = SudokuMDM(SudokuConfig(side=side))
    ids = torch.randint(0, side + 1, (3, side**2))
    logits = model.logits(model.embed(ids))
    assert logits.shape == (3, side**2, side + 1)
    assert model.mask_id == 0
    assert model.allowed_ids.tolist() == [False] + [True] * side


def test_cells_know_their_row_column_and_box():
    features = {name: x.view(4, 4).tolist() for name, x in cell_features(4).items()}
    assert features["row"] == [[0] * 4, [1] * 4, [2] * 4, [3] * 4]
    assert features["column"] == [[0, 1, 2, 3]] * 4
    assert features["box"] == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"side": 8}, "side must be a square number from 4 on, got 8"),
        ({"width": 100, "heads": 8}, "width must be a multiple of twice the heads, got 100 and 8"),
    ],
)
def test_bad_shapes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuConfig(**settings)
