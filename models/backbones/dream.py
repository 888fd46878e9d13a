"""Dream: a Qwen2-shaped transformer that attends both ways and predicts the next position.

It grew out of an autoregressive model, so that its output at a position is about the one after.
`hidden` moves outputs by one, and nobody else has to know. Parameters have the names and shapes of
the published weights.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.backbone import Backbone, check_ids
from remask.models.backbones.layers import (
    RMSNorm,
    Turn,
    attend,
    check_heads,
    check_length,
    padding_mask,
    rotary,
    swiglu,
)
from remask.models.checkpoints.sizes import check_positive, check_sizes
from remask.models.history import HistoryConfig


@dataclass(frozen=True, kw_only=True)
class DreamConfig:
    """Shape of the model, under the names of the published config. The defaults are Dream-7B's."""

    hidden_size: int = 3584
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: int = 4
    intermediate_size: int = 18944
    vocab_size: int = 152064
    """Rows of the embedding, MASK and unused ones included."""
    mask_token_id: int = 151666
    max_position_embeddings: int = 131072
    rope_theta: float = 1000000.0
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    """The head is the embedding."""
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which are never revealed; MASK need not be among them."""

    def __post_init__(self) -> None:
        heads = ("hidden_size", "num_attention_heads", "num_key_value_heads")
        sizes = ("num_hidden_layers", "intermediate_size", "vocab_size", "max_position_embeddings")
        check_sizes(self, heads + sizes)
        check_positive(self, ("rope_theta", "rms_norm_eps"))
        check_heads(self.hidden_size, self.num_attention_heads, self.num_key_value_heads, heads)
        check_ids(self.mask_token_id, self.excluded_ids, self.vocab_size)

    @property
    def head_width(self) -> int:
        return self.hidden_size // self.num_attention_heads


class DreamMDM(Backbone):
    """Embeddings, layers, norm and head, under the published names."""

    kind = "dream"

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
            if parameter.ndim == 2:  # as LLaDA's
                deep = "o_proj" in name or "down_proj" in name
                depth = 2 * config.num_hidden_layers if deep else 1
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
        turn = rotary(embeds.shape[1], width, theta, embeds.device)
        mask = padding_mask(attention_mask)
        x = embeds
        for block in self.blocks:
            x = block(x, turn, mask)
        return shift(self.model.norm(x), attention_mask)

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.tie_word_embeddings:
            return F.linear(hidden, self.token_embedding)
        return self.lm_head(hidden)


def shift(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Give each position the output of the one before it, [B, N, D].

    A sequence's first position has none before it and keeps its own, which predicts something else:
    put a prompt or BOS there. So it is too when padding comes before it.
    """
    before = torch.cat([hidden[:, :1], hidden[:, :-1]], 1)
    if attention_mask is None:
        return before
    is_first = attention_mask[:, 1:] & ~attention_mask[:, :-1]
    return torch.where(F.pad(is_first, (1, 0))[..., None], hidden, before)


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

    def forward(self, x: Tensor, turn: Turn, mask: Tensor | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, mask)
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

    def forward(self, x: Tensor, turn: Turn, mask: Tensor | None) -> Tensor:
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(attend(query, key, value, self._head_width, turn, mask))


class _FeedForward(nn.Module):
    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return swiglu(x, self.gate_proj, self.up_proj, self.down_proj)
