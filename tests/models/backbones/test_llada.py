"""LLaDA against transformers' Llama with the causal mask off, and the published shapes."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from remask.models import LladaConfig, LladaMDM, load, save

SMALL = {
    "d_model": 32,
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 2,
    "mlp_hidden_size": 48,
    "vocab_size": 60,
    "mask_token_id": 59,
    "max_sequence_length": 24,
}
TO_LLAMA = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}


def llama_of(model):
    """The same weights in transformers' own implementation."""
    config = model.config
    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.mlp_hidden_size,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            max_position_embeddings=config.max_sequence_length,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.weight_tying,
            attn_implementation="eager",
        )
    ).eval()
    renamed = {}
    for name, x in model.state_dict().items():
        parts = name.split(".")[2:]
        if parts[0] == "blocks":
            name = f"model.layers.{parts[1]}.{TO_LLAMA[parts[2]]}.weight"
        else:
            name = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}[
                parts[0]
            ] + ".weight"
        renamed[name] = x
    if config.weight_tying:
        renamed["lm_head.weight"] = renamed["model.embed_tokens.weight"]
    llama.load_state_dict(renamed)
    return llama


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_llamas_with_attention_both_ways(tied):
    torch.manual_seed(0)
    model = LladaMDM(LladaConfig(**SMALL, weight_tying=tied)).eval()
    for x in model.parameters():  # norms too: a weight of 1 hides mistakes
        torch.nn.init.normal_(x, mean=float(x.ndim == 1), std=0.1)
    ids = torch.randint(0, 59, (3, 17))
    keep = torch.ones(3, 17, dtype=torch.bool)
    keep[1, 12:] = False
    everyone = torch.zeros(3, 1, 17, 17).masked_fill(~keep[:, None, None, :], -torch.inf)
    with torch.no_grad():
        expected = llama_of(model)(input_ids=ids, attention_mask=everyone).logits
        actual = model.logits(model.embed(ids), attention_mask=keep)
    torch.testing.assert_close(actual[keep], expected[keep], rtol=1e-5, atol=1e-5)


def test_padding_changes_nothing():
    model = LladaMDM(LladaConfig(**SMALL)).eval()
    ids = torch.randint(0, 59, (2, 10))
    padded = torch.cat([ids, torch.zeros(2, 5, dtype=torch.long)], 1)
    keep = torch.arange(15) < 10
    with torch.no_grad():
        alone = model.logits(model.embed(ids))
        actual = model.logits(model.embed(padded), attention_mask=keep.expand(2, 15))
    torch.testing.assert_close(actual[:, :10], alone, rtol=1e-5, atol=1e-5)


def test_the_default_is_llada_8b_tensor_by_tensor():
    with torch.device("meta"):
        model = LladaMDM(LladaConfig())
    tensors = model.state_dict()
    assert len(tensors) == 291
    assert sum(x.numel() for x in tensors.values()) * 2 == 16_031_162_368
    assert tensors["model.transformer.wte.weight"].shape == (126464, 4096)
    assert tensors["model.transformer.ff_out.weight"].shape == (126464, 4096)
    assert tensors["model.transformer.blocks.31.ff_proj.weight"].shape == (12288, 4096)


def test_it_is_saved_and_loaded(tmp_path):
    model = LladaMDM(LladaConfig(**SMALL))
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.config == model.config
    assert again.history == model.history
    for name, x in model.state_dict().items():
        assert torch.equal(x, again.state_dict()[name])


def test_too_many_positions_are_refused():
    model = LladaMDM(LladaConfig(**SMALL))
    with pytest.raises(ValueError, match="takes 24 positions, got 25"):
        model.hidden(torch.zeros(1, 25, 32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_heads": 3}, "d_model must be a multiple"),
        ({"n_kv_heads": 3}, "n_heads of n_kv_heads"),
        ({"mask_token_id": 60}, "mask_token_id must lie below vocab_size 60"),
        ({"n_layers": 0}, r"n_layers must lie in \[1, 4194304\], got 0"),
    ],
)
def test_an_invalid_shape_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        LladaConfig(**SMALL | changes)
