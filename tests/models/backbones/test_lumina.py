"""Lumina-DiMOO: LLaDA's body, codes alone in its head, the published layout."""

import pytest
import torch

from remask.models import LuminaConfig, LuminaMDM, create, load, revise, save
from remask.models.checkpoints.checkpoint import outline
from remask.models.checkpoints.config_file import read_published_config
from remask.models.checkpoints.folder import CheckpointError
from remask.models.images.edit_rows import EditLayout
from remask.models.images.tokens import ImageLayout
from tests.models.backbones.test_llada import llama_of
from tests.models.folders import LLADA, randomise, write_folder

LAYOUT = EditLayout(
    image=ImageLayout(code_offset=40, num_codes=20, newline_id=3, begin_id=1, end_id=2),
    unconditional_id=4,
    answer_id=5,
    answer_end_id=6,
)
SMALL = {
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 48,
    "vocab_size": 60,
    "mask_token_id": 39,
    "max_sequence_length": 64,
    "rope_theta": 10000.0,
}
PUBLISHED = LLADA | {
    "architectures": ["LLaDAForMultiModalGeneration"],
    "d_model": 16,
    "n_kv_heads": 4,
    "max_sequence_length": 64,
    "vocab_size": 134548,
    "embedding_size": 134548,
    "mask_token_id": 126336,
}


def small(**changes):
    return randomise(LuminaMDM(LuminaConfig(**SMALL | changes, layout=LAYOUT)))


def codes_and_mask(model):
    return torch.tensor([model.mask_id, *range(40, 60)])


@pytest.mark.parametrize("tied", [False, True])
def test_it_gives_llamas_logits_for_codes_and_mask_and_nothing_else(tied):
    model = small(weight_tying=tied)
    ids, keep = torch.randint(0, 60, (3, 17)), torch.ones(3, 17, dtype=torch.bool)
    keep[1, 12:] = False
    everyone = torch.zeros(3, 1, 17, 17).masked_fill(~keep[:, None, None, :], -torch.inf)
    with torch.no_grad():
        expected = llama_of(model)(input_ids=ids, attention_mask=everyone).logits
        actual = model.logits(model.embed(ids), attention_mask=keep)
    predicted = codes_and_mask(model)
    torch.testing.assert_close(
        actual[keep][:, predicted], expected[keep][:, predicted], rtol=1e-5, atol=1e-5
    )
    others = torch.ones(60, dtype=torch.bool).index_fill_(0, predicted, False)
    assert bool((actual[..., others] == -torch.inf).all())


def test_a_published_folder_gives_llamas_logits(tmp_path):
    values = {k: PUBLISHED[k] for k in SMALL}
    model = randomise(LuminaMDM(LuminaConfig(**values)))
    folder = write_folder(tmp_path / "x", PUBLISHED, model.state_dict(), shards=2, tokenizer=False)
    loaded, ids = load(folder), torch.tensor([[5, 126349, 126356, 134547, 126084, 126336]])
    with torch.no_grad():
        expected = llama_of(model)(input_ids=ids, attention_mask=torch.zeros(1, 1, 6, 6)).logits
        actual = loaded.logits(loaded.embed(ids))
    predicted = torch.tensor([126336, *range(126356, 134548)])
    torch.testing.assert_close(
        actual[..., predicted], expected[..., predicted], rtol=1e-5, atol=1e-5
    )
    assert loaded.kind == "lumina"
    assert int(loaded.allowed_ids.sum()) == 8192


def test_the_published_config_gives_llada_with_134548_rows(tmp_path):
    shape = {"d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32}
    shape |= {"mlp_hidden_size": 12288, "max_sequence_length": 4096, "rope_theta": 500000.0}
    config = read_published_config(tmp_path, PUBLISHED | shape)
    assert config == LuminaConfig()
    with torch.device("meta"):
        tensors = LuminaMDM(config).state_dict()
    assert len(tensors) == 291
    more_rows = 2 * (134548 - 126464) * 4096
    assert sum(x.numel() for x in tensors.values()) == 8_015_581_184 + more_rows
    assert tensors["model.transformer.ff_out.weight"].shape == (134548, 4096)


def test_the_ids_around_the_instruction_come_from_the_tokenizer(tmp_path):
    tokenizer = '{"added_tokens": [{"id": 126345, "content": "<user>", "special": true}]}'
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    layout = read_published_config(tmp_path, PUBLISHED).layout
    assert (layout.text_begin_id, layout.text_end_id) == (126345, None)
    assert layout.image == ImageLayout()


def test_llada_itself_is_no_lumina(tmp_path):
    llada = PUBLISHED | {"architectures": ["LLaDAModelLM"]}
    assert not isinstance(read_published_config(tmp_path, llada), LuminaConfig)


def test_too_few_rows_for_the_codes_are_refused(tmp_path):
    few = PUBLISHED | {"vocab_size": 126464, "embedding_size": 126464}
    folder = write_folder(tmp_path / "x", few, {}, tokenizer=False)
    with pytest.raises(CheckpointError, match="below vocab_size 126464, got 134547"):
        outline(folder)


def test_rows_after_the_codes_are_unused():
    assert small().fits(60)
    assert small(vocab_size=64).fits(60)
    assert not small().fits(50)
    assert not small(vocab_size=64).fits(64)


def test_mask_can_be_no_code():
    with pytest.raises(ValueError, match="mask_token_id 41 must be neither a code"):
        small(mask_token_id=41)


def test_a_small_one_is_made_by_a_recipe_and_comes_back(tmp_path):
    image = {"code_offset": 40, "num_codes": 20, "newline_id": 3, "begin_id": 1, "end_id": 2}
    layout = {"image": image, "unconditional_id": 4, "answer_id": 5, "answer_end_id": 6}
    model = create({"kind": "lumina", **SMALL, "layout": layout})
    assert model.layout == LAYOUT
    save(model, tmp_path / "m")
    again, ids = load(tmp_path / "m"), torch.arange(12)[None]
    assert again.config == model.config
    assert torch.equal(again.logits(again.embed(ids)), model.logits(model.embed(ids)))


def test_only_codes_are_revealed():
    model = small()
    row = LAYOUT.row([7, 8], torch.zeros(3, 2).long(), torch.zeros(3, 2).long(), "canvas")
    start = torch.where(row.editable, model.mask_id, row.target)[None]
    out = revise(model, start, row.editable[None], max_steps=4)
    assert LAYOUT.image.to_codes(out.tokens[0, 4:-2], 3, 2).shape == (3, 2)
    assert torch.equal(out.tokens[0][~row.editable], row.target[~row.editable])


def test_the_heads_gradient_reaches_the_rows_in_use_alone():
    model = small()
    hidden = torch.randn(5, 32)
    model.head(hidden)[:, codes_and_mask(model)].logsumexp(-1).sum().backward()
    grad = model.model["transformer"]["ff_out"].weight.grad
    used = grad.abs().sum(-1) > 0
    assert torch.equal(used.nonzero()[:, 0], codes_and_mask(model).sort().values)
