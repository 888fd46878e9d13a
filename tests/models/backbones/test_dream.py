"""Dream against transformers' Qwen2 with the causal mask off and its logits shifted by one."""

import json

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from remask.models import CheckpointError, DreamConfig, DreamMDM, HistoryConfig, load, save
from remask.models.backbones.dream import shift
from remask.models.checkpoints.checkpoint import outline
from tests.models.checkpoints.test_published import check_own_function
from tests.models.folders import DREAM, randomise, write_folder


def qwen(tied: bool = False):
    """A Qwen2 of Dream's shape in transformers' own implementation."""
    names = ("hidden_size", "intermediate_size", "vocab_size", "rms_norm_eps")
    counts = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    config = Qwen2Config(
        **{name: DREAM[name] for name in (*names, *counts, "max_position_embeddings")},
        rope_parameters={"rope_type": "default", "rope_theta": DREAM["rope_theta"]},
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    return randomise(Qwen2ForCausalLM(config))


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def pair(request, tmp_path):
    """A Qwen2 and the Dream folder with its weights, read by us."""
    theirs = qwen(request.param)
    tensors = {name: x.clone() for name, x in theirs.state_dict().items()}
    config = DREAM | {"tie_word_embeddings": request.param}
    folder = write_folder(tmp_path / "dream", config, tensors, shards=2)
    return theirs, load(folder)


def test_logits_are_qwens_both_ways_and_one_position_on(pair):
    theirs, model = pair
    ids = torch.randint(0, 60, (3, 17))
    keep = torch.ones(3, 17, dtype=torch.bool)
    keep[1, 12:] = False
    everyone = torch.zeros(3, 1, 17, 17).masked_fill(~keep[:, None, None, :], -torch.inf)
    with torch.no_grad():
        plain = theirs(input_ids=ids, attention_mask=everyone).logits
        actual = model.logits(model.embed(ids), attention_mask=keep)
    expected = torch.cat([plain[:, :1], plain[:, :-1]], 1)
    torch.testing.assert_close(actual[keep], expected[keep], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side):
    model = small()
    ids = torch.randint(0, 60, (2, 10))
    padding, real = torch.zeros(2, 5, dtype=torch.long), torch.ones(2, 10, dtype=torch.bool)
    parts = [(padding, padding.bool()), (ids, real)]
    tokens, keep = zip(*(parts if side == "left" else parts[::-1]), strict=True)
    keep = torch.cat(keep, 1)
    with torch.no_grad():
        alone = model.logits(model.embed(ids))
        actual = model.logits(model.embed(torch.cat(tokens, 1)), attention_mask=keep)
    torch.testing.assert_close(actual[keep].view_as(alone), alone, rtol=1e-5, atol=1e-5)


def small():
    names = (
        "hidden_size intermediate_size vocab_size num_hidden_layers num_attention_heads "
        "num_key_value_heads max_position_embeddings mask_token_id"
    )
    return randomise(DreamMDM(DreamConfig(**{name: DREAM[name] for name in names.split()})))


def test_the_first_token_of_a_row_keeps_its_own_output():
    hidden = torch.arange(5.0).expand(2, 5)[..., None]
    keep = torch.tensor([[True] * 5, [False, False, True, True, True]])
    assert shift(hidden, None)[0, :, 0].tolist() == [0, 0, 1, 2, 3]
    assert shift(hidden, keep)[0, :, 0].tolist() == [0, 0, 1, 2, 3]
    assert shift(hidden, keep)[1, 2:, 0].tolist() == [2, 2, 3]


def test_without_history_it_is_exactly_the_published_function(pair):
    assert pair[1].history == HistoryConfig(norm="match")
    check_own_function(pair[1])


def test_it_is_saved_and_loaded(pair, tmp_path):
    model = pair[1]
    save(model, tmp_path / "ours")
    again = load(tmp_path / "ours", dtype=torch.bfloat16)
    assert again.config == model.config
    for name, x in model.state_dict().items():
        assert torch.equal(x.bfloat16(), again.state_dict()[name])


def test_special_and_unused_ids_are_never_revealed_but_ends_are(pair):
    assert pair[1].allowed_ids.nonzero()[:, 0].tolist() == [*range(50), 51, 56, 58]


def test_the_default_has_dream_7bs_tensors():
    with torch.device("meta"):
        tensors = DreamMDM(DreamConfig()).state_dict()
        theirs = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=3584,
                intermediate_size=18944,
                vocab_size=152064,
                num_hidden_layers=28,
                num_attention_heads=28,
                num_key_value_heads=4,
            )
        ).state_dict()
    assert {name: x.shape for name, x in tensors.items()} == {
        name: x.shape for name, x in theirs.items()
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling is .*'yarn'.*; only None can be loaded"),
        ({"use_sliding_window": True}, "use_sliding_window is True; only False can be loaded"),
        ({"vocab_size": None}, r"config.json: it lacks \['vocab_size'\]"),
        ({"num_key_value_heads": 3}, "num_attention_heads of num_key_value_heads; got 32, 4, 3"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers must lie in \[1, 4194304\], got 0"),
        ({"intermediate_size": 40}, r"gate_proj.weight is \[48, 32\], the config says \[40, 32\]"),
    ],
)
def test_an_invalid_config_is_refused(tmp_path, changes, message):
    folder = write_folder(tmp_path / "x", DREAM, small().state_dict())
    (folder / "config.json").write_text(json.dumps(DREAM | changes))
    with pytest.raises(CheckpointError, match=message):
        outline(folder)


def test_too_many_positions_are_refused():
    with pytest.raises(ValueError, match="takes 24 positions, got 25"):
        small().hidden(torch.zeros(1, 25, 32))
