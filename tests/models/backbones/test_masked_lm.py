"""Masked language models against transformers' own forward, as it saves and as others publish."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForMaskedLM

from remask.models import (
    CheckpointError,
    HistoryConfig,
    MaskedLM,
    MaskedLMConfig,
    create,
    fingerprint,
    load,
    revise,
    save,
)
from remask.models.backbones.masked_lm import FAMILIES
from remask.models.checkpoints.adapter import add_lora, merge
from remask.models.checkpoints.checkpoint import outline
from tests.models.checkpoints.test_published import check_own_function
from tests.models.folders import randomise, write_tokenizer

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 50,
    "eos_token_id": 51,
}
OWN = {
    "albert": {"embedding_size": 16, "num_hidden_layers": 3},
    "distilbert": {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    "electra": {"embedding_size": 16},
    "modernbert": {"num_hidden_layers": 4, "local_attention": 4, "cls_token_id": 50}
    | {"sep_token_id": 51},
}


def publish(folder, kind, **changes):
    """A random model of a kind, saved by transformers with a tokenizer beside it."""
    config = AutoConfig.for_model(kind, **SMALL | OWN.get(kind, {}) | changes)
    theirs = randomise(AutoModelForMaskedLM.from_config(config))
    theirs.save_pretrained(folder)
    write_tokenizer(folder, mask="<mask>")
    return theirs


@pytest.fixture(params=sorted(FAMILIES))
def pair(request, tmp_path):
    theirs = publish(tmp_path / "theirs", request.param)
    return theirs, load(tmp_path / "theirs")


def padded(side):
    """Two rows of 26 tokens, the second with 14 of padding, and where the tokens are."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 60, (2, 26), generator=generator)
    keep = torch.ones(2, 26, dtype=torch.bool)
    keep[1, slice(0, 14) if side == "left" else slice(12, 26)] = False
    return ids.masked_fill(~keep, 1), keep


def test_logits_are_transformers_own(pair):
    theirs, model = pair
    ids, keep = padded("right")
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=keep.long()).logits
        actual = model.logits(model.embed(ids), attention_mask=keep)
        expected_whole = theirs(input_ids=ids[:1]).logits
        whole = model.logits(model.embed(ids[:1]))
    assert actual.std() > 0.1
    torch.testing.assert_close(actual[keep], expected[keep], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(whole, expected_whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(pair, side):
    model = pair[1]
    ids, keep = padded(side)
    with torch.no_grad():
        actual = model.logits(model.embed(ids), attention_mask=keep)
        alone = model.logits(model.embed(ids[1:, keep[1]]))
    torch.testing.assert_close(actual[1:, keep[1]], alone, rtol=1e-5, atol=1e-5)


def test_it_starts_from_its_own_function_and_revises(pair):
    model = pair[1]
    assert model.history == HistoryConfig(norm="match")
    check_own_function(model)
    out = revise(model, torch.full((2, 12), model.mask_id), max_steps=3)
    assert model.allowed_ids[out.tokens].all()


def test_it_is_saved_in_our_own_format_and_stays_tied(pair, tmp_path):
    model = pair[1]
    save(model, tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert again.config == model.config
    assert [n for n, _ in again.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert not any(x.is_meta for x in (*again.parameters(), *again.buffers()))
    ids, keep = padded("right")
    first, second = (m.logits(m.embed(ids), attention_mask=keep) for m in (model, again))
    assert torch.equal(first, second)
    assert outline(tmp_path / "ours").config == model.config


def test_bfloat16_is_finite_and_near(pair, tmp_path):
    model = load(tmp_path / "theirs", dtype=torch.bfloat16)
    assert {x.dtype for x in model.parameters()} == {torch.bfloat16}
    ids, keep = padded("right")
    with torch.no_grad():
        actual = model.logits(model.embed(ids), attention_mask=keep)[keep].float()
        exact = pair[1].logits(pair[1].embed(ids), attention_mask=keep)[keep]
    assert (actual - exact).abs().mean() < 0.05 * exact.abs().mean()


def test_an_adapter_goes_on_its_blocks_and_merges(pair):
    model = pair[1]
    ids = torch.arange(12)[None]
    before = model.logits(model.embed(ids))
    add_lora(model, rank=2, alpha=4.0)
    model.logits(model.embed(ids)).sum().backward()
    trained = [name for name, x in model.named_parameters() if x.grad is not None]
    assert trained
    assert all("lora_" in name for name in trained)
    torch.testing.assert_close(merge(model).logits(model.embed(ids)), before)


def test_shards_as_transformers_writes_them(tmp_path):
    theirs = publish(tmp_path / "one", "bert")
    theirs.save_pretrained(tmp_path / "many", max_shard_size="10KB")
    write_tokenizer(tmp_path / "many", mask="<mask>")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 3
    one, many = load(tmp_path / "one"), load(tmp_path / "many")
    for name, x in one.state_dict().items():
        assert torch.equal(x, many.state_dict()[name])
    assert fingerprint(tmp_path / "one") != fingerprint(tmp_path / "many")


def test_old_files_with_other_heads_and_names_are_read(tmp_path):
    publish(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    old = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): x
        for name, x in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    old["bert.pooler.dense.weight"] = torch.zeros(32, 32)
    old["cls.seq_relationship.weight"] = torch.zeros(2, 32)
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 0
    new = load(tmp_path)
    save_file(old, path)
    for _ in range(2):
        for name, x in load(tmp_path).state_dict().items():
            assert torch.equal(x, new.state_dict()[name])
        old.pop("bert.embeddings.word_embeddings.weight", None)  # the head's is the same
        save_file(old, path)


def test_the_first_modernbert_configs_are_read_too(tmp_path):
    angles = {"full_attention": 5000.0, "sliding_attention": 300.0}
    rope = {name: {"rope_type": "default", "rope_theta": x} for name, x in angles.items()}
    theirs = publish(tmp_path, "modernbert", rope_parameters=rope)
    settings = json.loads((tmp_path / "config.json").read_text())
    for name in ("rope_parameters", "layer_types"):
        settings.pop(name, None)
    settings |= {"global_rope_theta": 5000.0, "local_rope_theta": 300.0}
    settings |= {"global_attn_every_n_layers": 3, "reference_compile": True}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model, (ids, _) = load(tmp_path), padded("right")
    with torch.no_grad():
        expected = theirs(input_ids=ids).logits
        torch.testing.assert_close(model.logits(model.embed(ids)), expected, rtol=1e-5, atol=1e-5)


def test_loading_leaves_the_random_state_alone(tmp_path):
    publish(tmp_path, "bert")
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    load(tmp_path)
    assert torch.equal(torch.rand(1), expected)


def test_no_code_of_the_folder_runs(tmp_path):
    publish(tmp_path, "bert")
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["auto_map"] = {"AutoConfig": "trap.Trap", "AutoModelForMaskedLM": "trap.Trap"}
    settings["_attn_implementation"] = settings["attn_implementation"] = "someone/kernel"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "trap.py").write_text("raise SystemExit('code of a checkpoint was run')")
    model = load(tmp_path)
    assert "auto_map" not in model.config.settings
    assert model.lm.config._attn_implementation == "sdpa"


def test_a_new_one_can_be_made_from_a_recipe():
    settings = {"kind": "masked_lm", "model_type": "bert", "settings": SMALL, "mask_token_id": 5}
    model = create(settings)
    assert isinstance(model, MaskedLM)
    assert model.max_length == 40
    assert model.logits(model.embed(torch.arange(9)[None])).shape == (1, 9, 64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "wide"}, "transformers cannot build this bert: .*hidden_size"),
        ({"hidden_size": 30}, r"config.json: .*hidden size \(30\) is not a multiple"),
        ({"intermediate_size": 40}, r"dense.weight is \[48, 32\], the config says \[40, 32\]"),
        ({"num_hidden_layers": 3}, r"lacks \['lm.bert.encoder.layer.2"),
        ({"vocab_size": None}, "vocab_size must be int, got None"),
        ({"is_decoder": True}, "is_decoder is true; the model must attend both ways"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"mask_token_id": 64}, "mask_token_id must lie below vocab_size 64, got 64"),
    ],
)
def test_an_invalid_config_is_refused(tmp_path, changes, message):
    publish(tmp_path, "bert")
    settings = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


def test_a_tokenizer_without_the_mask_token_is_refused(tmp_path):
    publish(tmp_path, "roberta")
    write_tokenizer(tmp_path, mask="<other>")
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": "<mask>"}')
    with pytest.raises(CheckpointError, match="the tokenizer lacks its mask token <mask>; add it"):
        load(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match="does not say which id is MASK: config.json has no"):
        load(tmp_path)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"model_type must be one of \['albert', .*got 't5'"):
        MaskedLMConfig(model_type="t5", settings=SMALL, mask_token_id=5)
