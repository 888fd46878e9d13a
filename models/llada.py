"""LLaDA: a Llama-shaped transformer that attends both ways, with MASK among its tokens.

Parameters have the names and shapes of the published weights. Small ones of the same build serve as
text models of one's own.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.backbone import Backbone
from models.history import HistoryConfig


@dataclass(frozen=True, kw_only=True)
class LladaConfig:
    """Shape of the model, under the names of the published config. The defaults are LLaDA-8B's."""

    d_model: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: int = 32
    mlp_hidden_size: int = 12288
    vocab_size: int = 126464
    """Rows of the embedding, MASK and unused ones included."""
    mask_token_id: int = 126336
    max_sequence_length: int = 4096
    rope_theta: float = 500000.0
    rms_norm_eps: float = 1e-5
    weight_tying: bool = False
    """The head is the embedding."""

    def __post_init__(self) -> None:
        sizes = ("d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "vocab_size")
        for name in (*sizes, "max_sequence_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % (2 * self.n_heads) or self.n_heads % self.n_kv_heads:
            raise ValueError(
                "d_model must be a multiple of twice n_heads, and n_heads of n_kv_heads; got "
                f"{self.d_model}, {self.n_heads}, {self.n_kv_heads}"
            )
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise ValueError(
                f"mask_token_id must lie below vocab_size {self.vocab_size}, got "
                f"{self.mask_token_id}"
            )

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads


class LladaMDM(Backbone):
    """Embeddings, blocks, norm and head, under the published names."""

    kind = "llada"

    def __init__(self, config: LladaConfig, history: HistoryConfig | None = None) -> None:
        super().__init__()
        self.config: LladaConfig = config
        self.history = history or HistoryConfig(norm="match")
        self.mask_id, self.vocab_size = config.mask_token_id, config.vocab_size
        self.max_length = config.max_sequence_length
        self.model = nn.ModuleDict({"transformer": _transformer(config)})
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Small enough that a fresh model is near uniform, and deep ones do not blow up.
                depth = 1 if "blocks" not in name else 2 * config.n_layers
                nn.init.normal_(parameter, std=0.02 if "out" not in name else 0.02 / depth**0.5)

    @property
    def blocks(self) -> nn.ModuleList:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._parts["blocks"]  # pyright: ignore[reportReturnType]

    @property
    def token_embedding(self) -> Tensor:
        return self._parts["wte"].weight  # pyright: ignore[reportReturnType]

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        most = self.config.max_sequence_length
        if embeds.shape[1] > most:
            raise ValueError(
                f"the model takes {most} positions, got {embeds.shape[1]}; shorten them"
            )
        turn = rotary(embeds.shape[1], self.config, embeds.device)
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        x = embeds
        for block in self.blocks:
            x = block(x, turn, mask)
        return self._parts["ln_f"](x)

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.weight_tying:
            return F.linear(hidden, self.token_embedding)
        return self._parts["ff_out"](hidden)

    @property
    def _parts(self) -> nn.ModuleDict:
        return self.model["transformer"]  # pyright: ignore[reportReturnType]


def rotary(length: int, config: LladaConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, [N, D / heads] each, float32."""
    half = torch.arange(0, config.head_width, 2, device=device) / config.head_width
    angle = torch.arange(length, device=device)[:, None] * config.rope_theta**-half
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def _transformer(config: LladaConfig) -> nn.ModuleDict:
    parts: dict[str, nn.Module] = {
        "wte": nn.Embedding(config.vocab_size, config.d_model),
        "blocks": nn.ModuleList(_Block(config) for _ in range(config.n_layers)),
        "ln_f": _Norm(config),
    }
    if not config.weight_tying:
        parts["ff_out"] = nn.Linear(config.d_model, config.vocab_size, bias=False)
    return nn.ModuleDict(parts)


class _Norm(nn.Module):
    def __init__(self, config: LladaConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.d_model))
        self._epsilon = config.rms_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], eps=self._epsilon).to(x.dtype) * self.weight


class _Block(nn.Module):
    def __init__(self, config: LladaConfig) -> None:
        super().__init__()
        self._config = config
        width, keys = config.d_model, config.n_kv_heads * config.head_width
        self.attn_norm = _Norm(config)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, keys, bias=False)
        self.v_proj = nn.Linear(width, keys, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.ff_norm = _Norm(config)
        self.ff_proj = nn.Linear(width, config.mlp_hidden_size, bias=False)
        self.up_proj = nn.Linear(width, config.mlp_hidden_size, bias=False)
        self.ff_out = nn.Linear(config.mlp_hidden_size, width, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        x = x + self._attend(self.attn_norm(x), turn, mask)
        y = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(y)) * self.up_proj(y))

    def _attend(self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            project(x).view(batch, length, -1, self._config.head_width).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )  # [B, H, N, D / H]
        query, key = (_rotate(heads, *turn) for heads in (query, key))
        is_grouped = self._config.n_kv_heads < self._config.n_heads
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=is_grouped
        )
        return self.attn_out(mixed.transpose(1, 2).reshape(batch, length, width))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.float().chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (x.float() * cos + turned * sin).to(x.dtype)
