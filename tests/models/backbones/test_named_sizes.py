"""Models by a size: what a size stands for, and what takes precedence over it."""

import json
from pathlib import Path

import pytest
import torch

from remask.models import create, load, save
from remask.models.backbones import BACKBONES
from remask.models.backbones.named_sizes import (
    find_backbone,
    lacks_vocabulary,
    with_vocabulary,
    without_size,
)

IDS = {
    "llada": {"vocab_size": 40, "mask_token_id": 39},
    "dream": {"vocab_size": 40, "mask_token_id": 3},
}
SIZES = [(kind, size) for kind, backbone in BACKBONES.items() for size in backbone.sizes]


def parameters(kind, size, **settings):
    with torch.device("meta"):
        model = create({"kind": kind, "size": size} | IDS.get(kind, {}) | settings)
    return sum(x.numel() for x in model.blocks.parameters())


def test_some_kinds_have_sizes():
    assert {kind for kind, _ in SIZES} >= {"llada", "dream", "sudoku"}


@pytest.mark.parametrize("kind", ["llada", "dream", "sudoku"])
def test_sizes_grow(kind):
    counts = [parameters(kind, size) for size in BACKBONES[kind].sizes]
    assert counts == sorted(set(counts))


def test_llada_sizes_have_the_parameters_that_are_stated():
    counts = [parameters("llada", size) / 1e6 for size in ("tiny", "small", "base", "large")]
    assert [round(x, 1) for x in counts] == [0.9, 5.1, 25.7, 85.0]


def test_keys_beside_a_size_take_precedence():
    model = create({"kind": "llada", "size": "tiny", "n_layers": 1, **IDS["llada"]})
    assert (model.config.n_layers, model.config.d_model, model.mask_id) == (1, 128, 39)


def test_a_checkpoint_stores_numbers(tmp_path):
    settings = {"kind": "llada", "size": "tiny", **IDS["llada"]}
    save(create(settings), tmp_path / "model")
    config = json.loads(Path(tmp_path, "model", "config.json").read_text())["config"]
    assert "size" not in config
    assert (config["d_model"], config["vocab_size"]) == (128, 40)
    assert load(tmp_path / "model").config == create(settings).config


def test_the_vocabulary_is_filled_in_where_it_is_left_out():
    tiny = {"kind": "llada", "size": "tiny"}
    assert lacks_vocabulary(tiny)
    filled = with_vocabulary(tiny, 258, 256)
    assert filled == tiny | {"vocab_size": 258, "mask_token_id": 256}
    assert not lacks_vocabulary(filled)
    assert with_vocabulary(filled, 9, 8) == filled
    half = tiny | {"mask_token_id": 5}
    assert lacks_vocabulary(half)
    assert with_vocabulary(half, 258, 256) == half | {"vocab_size": 258}


def test_boards_and_image_codes_decide_their_own_vocabulary():
    for kind in ("sudoku", "lumina", "masked_lm"):
        assert not lacks_vocabulary({"kind": kind})
        assert with_vocabulary({"kind": kind}, 258, 256) == {"kind": kind}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "llada", "size": "huge"}, "size of kind llada must be one of .*tiny.*'huge'"),
        ({"kind": "llada", "size": ["tiny"]}, "size of kind llada must be one of"),
        ({"kind": "masked_lm", "size": "tiny"}, "size of kind masked_lm must be left out"),
        ({"kind": "gpt", "size": "tiny"}, "kind must be one of .*llada.* got 'gpt'"),
        ({"size": "tiny"}, "kind must be one of .*got None"),
    ],
)
def test_unknown_sizes_are_named(settings, message):
    for use in (without_size, create):
        with pytest.raises(ValueError, match=f"model: {message}"):
            use(settings)


def test_without_a_size_nothing_changes():
    assert without_size({"kind": "sudoku", "side": 4}) == {"kind": "sudoku", "side": 4}
    assert find_backbone({"kind": "sudoku"}).kind == "sudoku"
