"""Dream: a Qwen2-like transformer with bidirectional attention that predicts the next position.

It was initialised from an autoregressive model, so its output at a position predicts the following
one. `hidden` shifts the outputs by one position, so that callers see no difference. Parameters have
the names and shapes of the published weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones import llada
from remask.models.backbones.backbone import Backbone, check_ids, register_backbone
from remask.models.backbones.layers import (
    RMSNorm,
    Rotary,
    attend,
    check_heads,
    check_length,
    padding_mask,
    rotary,
    swiglu,
)
from remask.models.backbones.published import Settings, check_fixed, pick, with_token_ids
from remask.models.checkpoints.sizes import Positive, Size
from remask.models.history import HistoryConfig
from remask.models.ranges import check_fields

PUBLISHED_FIXED = {"hidden_act": "silu", "rope_scaling": None, "use_sliding_window": False}
"""Settings of a published config.json that this backbone supports with these values only."""


SIZES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        name: MappingProxyType(
            {
                "hidden_size": shape["d_model"],
                "num_hidden_layers": shape["n_layers"],
                "num_attention_heads": shape["n_heads"],
                "num_key_value_heads": shape["n_kv_heads"],
                "intermediate_size": shape["mlp_hidden_size"],
                "max_position_embeddings": shape["max_sequence_length"],
                "rope_theta": shape["rope_theta"],
            }
        )
        for name, shape in llada.SIZES.items()
        if shape
    }
    | {"7b": MappingProxyType({})}  # the defaults
)
"""Shapes of new models: those of LLaDA, and Dream-7B's."""


@dataclass(frozen=True, kw_only=True)
class DreamConfig:
    """Shape of the model, under the names of the published config. The defaults are Dream-7B's."""

    hidden_size: Size = 3584
    num_hidden_layers: Size = 28
    num_attention_heads: Size = 28
    num_key_value_heads: Size = 4
    intermediate_size: Size = 18944
    vocab_size: Size = 152064
    """Number of rows of the embedding, including MASK and unused rows."""
    mask_token_id: int = 151666
    max_position_embeddings: Size = 131072
    rope_theta: Positive = 1000000.0
    rms_norm_eps: Positive = 1e-6
    tie_word_embeddings: bool = False
    """Use the embedding as the head."""
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which are never revealed; MASK need not be listed."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_heads(self, ("hidden_size", "num_attention_heads", "num_key_value_heads"))
        check_ids(self.mask_token_id, self.excluded_ids, self.vocab_size)

    @property
    def head_width(self) -> int:
        return self.hidden_size // self.num_attention_heads


@register_backbone
class DreamMDM(Backbone):
    """Embeddings, layers, norm and head, under the published names."""

    kind = "dream"
    config_type = DreamConfig
    model_types = ("Dream",)
    sizes = SIZES
    vocabulary_fields = ("vocab_size", "mask_token_id")

    def __init__(self, config: DreamConfig, history: HistoryConfig | None = None) -> None:
        super().__init__()
        self.config: DreamConfig = config
        self.history = history or HistoryConfig(norm="match")
        self.mask_id, self.vocab_size = config.mask_token_id, config.vocab_size
        self.max_length = config.max_position_embeddings
        self.excluded_ids = config.excluded_ids
        self.model = _Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # as in LLaDA
                is_residual = "o_proj" in name or "down_proj" in name
                depth = 2 * config.num_hidden_layers if is_residual else 1
                nn.init.normal_(parameter, std=0.02 / depth**0.5)
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)

    @property
    def blocks(self) -> nn.ModuleList:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.model.layers

    @property
    def token_embedding(self) -> Tensor:
        return self.model.embed_tokens.weight

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        check_length(embeds.shape[1], self.config.max_position_embeddings)
        width, theta = self.config.head_width, self.config.rope_theta
        angles = rotary(embeds.shape[1], width, theta, embeds.device)
        mask = padding_mask(attention_mask)
        x = embeds
        for block in self.blocks:
            x = block(x, angles, mask)
        return shift(self.model.norm(x), attention_mask)

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.tie_word_embeddings:
            return F.linear(hidden, self.token_embedding)
        return self.lm_head(hidden)

    @classmethod
    def read_published(cls, settings: Settings, folder: Path) -> DreamConfig:
        check_fixed(settings, PUBLISHED_FIXED)
        sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        values = pick(
            settings,
            (*sizes, "vocab_size", "max_position_embeddings"),
            ("num_key_value_heads", "rope_theta", "rms_norm_eps", "tie_word_embeddings"),
        )
        values.setdefault("num_key_value_heads", values["num_attention_heads"])
        return with_token_ids(DreamConfig, values, settings, folder)

    @classmethod
    def rename_published(cls, config: Any, name: str) -> str | None:
        is_tied_head = config.tie_word_embeddings and name == "lm_head.weight"
        return None if is_tied_head or name.endswith("rotary_emb.inv_freq") else name


def shift(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Give each position the output of the position before it, [B, N, D].

    The first position of a sequence, which padding may precede, keeps its own output. That output
    predicts the second position, so a sequence should start with a prompt or BOS.
    """
    shifted = torch.cat([hidden[:, :1], hidden[:, :-1]], 1)
    if attention_mask is None:
        return shifted
    is_first = attention_mask[:, 1:] & ~attention_mask[:, :-1]
    return torch.where(F.pad(is_first, (1, 0))[..., None], hidden, shifted)


class _Body(nn.Module):
    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class _Layer(nn.Module):
    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _FeedForward(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, angles: Rotary, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Attention(nn.Module):
    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        self._head_width = config.head_width
        width, keys = config.hidden_size, config.num_key_value_heads * config.head_width
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, keys)
        self.v_proj = nn.Linear(width, keys)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, angles: Rotary, mask: Tensor | None) -> Tensor:
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(attend(query, key, value, self._head_width, angles, mask))


class _FeedForward(nn.Module):
    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return swiglu(x, self.gate_proj, self.up_proj, self.down_proj)
