"""Published folders: read as they are, by config alone; refused where they would compute else."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from remask.kernels import Segments
from remask.models import (
    CheckpointError,
    HistoryConfig,
    LladaConfig,
    LladaMDM,
    fingerprint,
    load,
    save,
)
from remask.models.checkpoints.adapter import AdapterSettings, add_lora, save_adapter
from remask.models.checkpoints.checkpoint import outline
from remask.models.checkpoints.config_file import read_published_config
from remask.models.history import HistoryState, encode_rows
from tests.models.backbones.test_llada import llama_of
from tests.models.folders import LLADA, randomise, write_folder

SHAPE = ("d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "max_sequence_length")


def llada(**changes):
    values = {name: LLADA[name] for name in (*SHAPE, "rope_theta", "mask_token_id")}
    return randomise(LladaMDM(LladaConfig(**values | {"vocab_size": 64} | changes)))


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "llada", LLADA, llada().state_dict(), shards=3)


def edit(folder, **changes):
    settings = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(settings))


def refuse(folder, message):
    for read in (load, outline):
        with pytest.raises(CheckpointError, match=message):
            read(folder)


def test_a_published_llada_gives_llamas_logits_with_padding(folder):
    model = load(folder)
    ids = torch.randint(0, 60, (3, 17))
    keep = torch.ones(3, 17, dtype=torch.bool)
    keep[1, 12:] = False
    keep[2, :4] = False
    everyone = torch.zeros(3, 1, 17, 17).masked_fill(~keep[:, None, None, :], -torch.inf)
    with torch.no_grad():
        expected = llama_of(llada())(input_ids=ids, attention_mask=everyone).logits
        actual = model.logits(model.embed(ids), attention_mask=keep)
        alone = model.logits(model.embed(ids[2:, 4:]))
    assert actual.shape == (3, 17, 64)
    torch.testing.assert_close(actual[keep], expected[keep], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(actual[2:, 4:], alone, rtol=1e-5, atol=1e-5)


def test_a_tied_head_is_the_embedding_even_where_it_is_saved(tmp_path):
    tied = llada(weight_tying=True)
    tensors = tied.state_dict()
    tensors["model.transformer.ff_out.weight"] = tied.token_embedding.detach().clone()
    model = load(write_folder(tmp_path / "x", LLADA | {"weight_tying": True}, tensors))
    ids = torch.arange(10)[None]
    torch.testing.assert_close(model.logits(model.embed(ids)), tied.logits(tied.embed(ids)))


INSTRUCT = LLADA | {
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 32,
    "mlp_hidden_size": 12288,
    "max_sequence_length": 4096,
    "rope_theta": 500000.0,
    "vocab_size": 126464,
    "embedding_size": 126464,
    "mask_token_id": 126336,
}


def test_the_published_8b_config_gives_its_291_tensors(tmp_path):
    config = read_published_config(tmp_path, INSTRUCT)
    assert config == LladaConfig()
    with torch.device("meta"):
        tensors = LladaMDM(config).state_dict()
    assert len(tensors) == 291
    assert sum(x.numel() for x in tensors.values()) * 2 == 16_031_162_368


def test_grouped_heads_a_tied_head_and_any_mask_come_from_the_config(tmp_path):
    changes = {"n_kv_heads": 8, "mlp_hidden_size": 14336, "weight_tying": True}
    rows = {"vocab_size": 155136, "embedding_size": 155136, "mask_token_id": 5}
    config = read_published_config(
        tmp_path, INSTRUCT | changes | rows | {"max_sequence_length": 8192}
    )
    with torch.device("meta"):
        model = LladaMDM(config)
    assert (model.mask_id, model.max_length) == (5, 8192)
    shapes = {name.split("transformer.")[1]: tuple(x.shape) for name, x in model.named_parameters()}
    assert shapes["wte.weight"] == (155136, 4096)
    assert shapes["blocks.0.k_proj.weight"] == (1024, 4096)
    assert shapes["blocks.31.ff_proj.weight"] == (14336, 4096)
    assert "ff_out.weight" not in shapes


def test_an_adapter_comes_with_its_published_model(folder, tmp_path):
    model = load(folder)
    add_lora(model, rank=2, alpha=4.0)
    for name, x in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(x)
    settings = AdapterSettings(
        base=str(folder),
        base_fingerprint=fingerprint(folder),
        rank=2,
        alpha=4.0,
        history=HistoryConfig(decay=0.7),
    )
    save_adapter(model, tmp_path / "adapter", settings)
    again, ids = load(tmp_path / "adapter"), torch.arange(12)[None]
    assert again.history == HistoryConfig(decay=0.7)
    assert torch.equal(again.logits(again.embed(ids)), model.logits(model.embed(ids)))


def test_shards_and_one_file_are_the_same_model_with_prints_of_their_own(folder, tmp_path):
    single = write_folder(tmp_path / "single", LLADA, llada().state_dict())
    one, other = load(folder), load(single)
    for name, x in one.state_dict().items():
        assert torch.equal(x, other.state_dict()[name])
    before = fingerprint(folder)
    assert before == fingerprint(folder) != fingerprint(single)
    shard = folder / "model-00002-of-00003.safetensors"
    tensors = load_file(shard)
    next(iter(tensors.values())).add_(1)
    save_file(tensors, shard)
    assert fingerprint(folder) != before
    edit(folder, rope_theta=5000.0)
    assert len({before, fingerprint(folder), fingerprint(single)}) == 3


def test_the_print_covers_the_tokenizer(folder):
    before = fingerprint(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text() + " ")
    changed = fingerprint(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert len({before, changed, fingerprint(folder)}) == 3


def test_a_config_alone_can_be_outlined_if_asked(folder):
    for shard in folder.glob("model*"):
        shard.unlink()
    assert outline(folder, check=False).config.d_model == LLADA["d_model"]
    refuse(folder, "lacks model.safetensors")


def test_outline_is_the_model_on_meta(folder):
    model = outline(folder)
    assert model.config == load(folder).config
    assert all(x.is_meta for x in model.parameters())


def test_dtype_and_history_can_be_chosen(folder):
    model = load(folder, dtype=torch.bfloat16)
    assert {x.dtype for x in model.parameters()} == {torch.bfloat16}
    assert model.logits(model.embed(torch.arange(9)[None])).isfinite().all()
    assert model.history == HistoryConfig(norm="match")
    chosen = HistoryConfig(decay=0.5)
    assert load(folder, history=chosen).history == chosen


def test_bfloat16_weights_stay_so(tmp_path):
    tensors = {name: x.bfloat16() for name, x in llada().state_dict().items()}
    model = load(write_folder(tmp_path / "x", LLADA, tensors))
    assert {x.dtype for x in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_history_it_is_exactly_the_published_function(folder, dtype):
    model = load(folder, dtype=dtype)
    check_own_function(model)


def check_own_function(model):
    """With `norm: match` and no past, the logits are the plain model's, bit for bit."""
    torch.manual_seed(0)
    ids = torch.randint(0, 60, (2, 15))
    weight = model.token_embedding
    with torch.no_grad():
        plain = model.logits(model.embed(ids))
        decoding = HistoryState(model.history, weight).update(ids)
        still = Segments(ids[None], ids.new_zeros(0, *ids.shape), ids.new_zeros(len(ids)))
        training = encode_rows(weight, still, horizon=6, config=model.history)
        for embeds in (decoding, training):
            assert torch.equal(model.logits(embeds.to(weight.dtype)), plain)


def test_special_and_unused_ids_are_never_revealed_but_ends_are(folder):
    allowed = load(folder).allowed_ids
    assert allowed.shape == (64,)
    assert allowed.nonzero()[:, 0].tolist() == [*range(50), 51, 56, 58]


def test_it_fits_data_of_its_tokenizer(folder):
    model = load(folder)
    assert [n for n in range(50, 70) if model.fits(n)] == [59, 60, 61, 62, 63, 64]


def test_without_a_tokenizer_only_mask_is_left_out(tmp_path):
    folder = write_folder(tmp_path / "x", LLADA, llada().state_dict(), tokenizer=False)
    assert (~load(folder).allowed_ids).nonzero()[:, 0].tolist() == [55]


def test_the_mask_is_the_tokenizers_where_the_config_has_none(folder):
    edit(folder, mask_token_id=None)
    assert load(folder).mask_id == 55


def test_it_is_saved_in_our_own_format(folder, tmp_path):
    model = load(folder)
    save(model, tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert again.config == model.config
    assert torch.equal(again.allowed_ids, model.allowed_ids)
    assert all(torch.equal(x, again.state_dict()[n]) for n, x in model.state_dict().items())


def test_config_and_tensors_that_disagree_are_named(folder):
    edit(folder, mlp_hidden_size=40)
    refuse(folder, r"blocks.0.ff_proj.weight is \[48, 32\], the config says \[40, 32\]")
    edit(folder, mlp_hidden_size=48, n_layers=3)
    refuse(folder, r"lacks \['model.transformer.blocks.2.attn_norm.weight', .*9 tensors missing")
    edit(folder, n_layers=1)
    refuse(folder, r"has unknown \['model.transformer.blocks.1.attn_norm.weight', .*9 unknown")


def test_a_missing_shard_is_named(folder):
    (folder / "model-00002-of-00003.safetensors").unlink()
    refuse(folder, "lacks model-00002-of-00003.safetensors")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "is not an index of shards"),
        ('{"weight_map": [1]}', "is not an index of shards"),
        ('{"weight_map": {}}', "names no shards"),
        ('{"weight_map": {"x": 3}}', "names 3, which is not a safetensors file beside it"),
        ('{"weight_map": {"x": "../y.safetensors"}}', "not a safetensors file beside it"),
        ('{"weight_map": {"x": "pytorch_model.bin"}}', "not a safetensors file beside it"),
    ],
)
def test_a_damaged_index_is_refused(folder, index, message):
    (folder / "model.safetensors.index.json").write_text(index)
    refuse(folder, message)


def test_pickles_alone_are_refused(tmp_path):
    folder = write_folder(tmp_path / "x", LLADA, {})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refuse(folder, r"lacks model.safetensors; \['pytorch_model.bin'\] .* convert it to safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, r"holds a 'gpt2' model; known model_types are .*'llada'"),
        ({"model_type": 5}, "holds a 5 model"),
        ({"alibi": True}, "config.json: alibi is True; only False can be loaded"),
        ({"block_type": "sequential"}, "block_type is 'sequential'; only 'llama'"),
        ({"d_model": None}, r"config.json: it lacks \['d_model'\]"),
        ({"d_model": "wide"}, "config: d_model must be int, got 'wide'"),
        ({"embedding_size": 60.5}, "vocab_size must be int, got 60.5"),
        ({"mask_token_id": 64}, "mask_token_id must lie below vocab_size 64, got 64"),
        ({"mask_token_id": "MASK"}, "mask_token_id must be an id, got 'MASK'"),
    ],
)
def test_an_invalid_config_is_refused(folder, changes, message):
    edit(folder, **changes)
    refuse(folder, message)
