"""The Sudoku model: its size, its two boards, and what its cells know of their place."""

import pytest
import torch
from torch.nn import functional as F

from remask.models import SudokuConfig, SudokuMDM
from remask.models.backbones.sudoku import cell_features


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
        ({"side": 8}, "side must be a square number, such as 4 or 9, got 8"),
        ({"width": 100, "heads": 8}, "width must be a multiple of twice the heads, got 100 and 8"),
    ],
)
def test_bad_shapes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SudokuConfig(**settings)


def test_loops_go_through_the_same_layers_again():
    torch.manual_seed(0)
    once, thrice = (SudokuMDM(SudokuConfig(side=4, width=32, loops=n)) for n in (1, 3))
    thrice.load_state_dict(once.state_dict())
    embeds = torch.randn(2, 16, 32)
    place = thrice.cell.weight + thrice.row(thrice.row_index) + thrice.column(thrice.column_index)
    x = embeds + place + thrice.box(thrice.box_index)
    for _ in range(3):
        for i, block in enumerate(thrice.blocks):
            x = block(x, thrice._attention_bias(i, None))
    torch.testing.assert_close(thrice.hidden(embeds), thrice.norm(x))
    assert not torch.allclose(once.hidden(embeds), thrice.hidden(embeds))


def test_attention_is_torchs_own():
    torch.manual_seed(0)
    model = SudokuMDM(SudokuConfig(side=4, width=32, heads=2))
    block, bias = model.blocks[0], model._attention_bias(0, None)
    x = torch.randn(2, 16, 32)
    query, key, value = block.query_key_value(x).view(2, 16, 3, 2, 16).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    expected = block.attention_out(mixed.transpose(1, 2).reshape(2, 16, 32))
    torch.testing.assert_close(block._attend(x, bias), expected)
