"""LLaDA: a Llama-like transformer with bidirectional attention and MASK in its vocabulary.

Parameters have the names and shapes of the published weights. Small models of the same architecture
can be trained from scratch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

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

PUBLISHED_FIXED = {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "bias_for_layer_norm": False,
    "attention_layer_norm": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "rope": True,
    "alibi": False,
    "multi_query_attention": False,
}
"""Settings of a published config.json that this backbone supports with these values only."""


SIZES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        name: MappingProxyType(
            {
                "d_model": width,
                "n_layers": layers,
                "n_heads": heads,
                "n_kv_heads": heads,
                "mlp_hidden_size": feed_forward,
                "max_sequence_length": 1024,
                "rope_theta": 10000.0,
            }
        )
        for name, width, layers, heads, feed_forward in (
            ("tiny", 128, 4, 4, 384),
            ("small", 256, 6, 8, 768),
            ("base", 512, 8, 8, 1408),
            ("large", 768, 12, 12, 2048),
        )
    }
    | {"8b": MappingProxyType({})}  # the defaults
)
"""Shapes of new models. Without embedding and head they have 0.9, 5, 26, 85 million and 7 billion
parameters."""


@dataclass(frozen=True, kw_only=True)
class LladaConfig:
    """Shape of the model, under the names of the published config. The defaults are LLaDA-8B's."""

    d_model: Size = 4096
    n_layers: Size = 32
    n_heads: Size = 32
    n_kv_heads: Size = 32
    mlp_hidden_size: Size = 12288
    vocab_size: Size = 126464
    """Number of rows of the embedding, including MASK and unused rows."""
    mask_token_id: int = 126336
    max_sequence_length: Size = 4096
    rope_theta: Positive = 500000.0
    rms_norm_eps: Positive = 1e-5
    weight_tying: bool = False
    """Use the embedding as the head."""
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which are never revealed; MASK need not be listed."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_heads(self, ("d_model", "n_heads", "n_kv_heads"))
        check_ids(self.mask_token_id, self.excluded_ids, self.vocab_size)

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads


@register_backbone
class LladaMDM(Backbone):
    """Embeddings, blocks, norm and head, under the published names."""

    kind = "llada"
    config_type = LladaConfig
    model_types = ("llada",)
    sizes = SIZES
    vocabulary_fields = ("vocab_size", "mask_token_id")

    def __init__(self, config: LladaConfig, history: HistoryConfig | None = None) -> None:
        super().__init__()
        self.config: LladaConfig = config
        self.history = history or HistoryConfig(norm="match")
        self.mask_id, self.vocab_size = config.mask_token_id, config.vocab_size
        self.max_length = config.max_sequence_length
        self.excluded_ids = config.excluded_ids
        self.model = nn.ModuleDict({"transformer": _transformer(config, self.make_head)})
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                # Small enough that a new model is near uniform and activations stay bounded.
                depth = 1 if "blocks" not in name else 2 * config.n_layers
                nn.init.normal_(parameter, std=0.02 if "out" not in name else 0.02 / depth**0.5)

    @property
    def blocks(self) -> nn.ModuleList:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._parts["blocks"]  # pyright: ignore[reportReturnType]

    @property
    def token_embedding(self) -> Tensor:
        return self._parts["wte"].weight  # pyright: ignore[reportReturnType]

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        check_length(embeds.shape[1], self.config.max_sequence_length)
        width, theta = self.config.head_width, self.config.rope_theta
        angles = rotary(embeds.shape[1], width, theta, embeds.device)
        mask = padding_mask(attention_mask)
        x = embeds
        for block in self.blocks:
            x = block(x, angles, mask)
        return self._parts["ln_f"](x)

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.weight_tying:
            return F.linear(hidden, self.token_embedding)
        return self._parts["ff_out"](hidden)

    @classmethod
    def read_published(cls, settings: Settings, folder: Path) -> LladaConfig:
        return with_token_ids(LladaConfig, published_values(settings), settings, folder)

    @classmethod
    def rename_published(cls, config: Any, name: str) -> str | None:
        # Some published files hold the head although it is tied to the embedding.
        is_tied_head = config.weight_tying and name == "model.transformer.ff_out.weight"
        return None if is_tied_head else name

    @staticmethod
    def make_head(config: LladaConfig) -> nn.Linear:
        """The head of a model that does not use its embedding as one."""
        return nn.Linear(config.d_model, config.vocab_size, bias=False)

    @property
    def _parts(self) -> nn.ModuleDict:
        return self.model["transformer"]  # pyright: ignore[reportReturnType]


def published_values(settings: Settings) -> dict[str, Any]:
    """The fields of `LladaConfig` that a published config.json gives, other than token ids."""
    check_fixed(settings, PUBLISHED_FIXED)
    names = ("d_model", "n_layers", "n_heads", "mlp_hidden_size", "max_sequence_length")
    values = pick(settings, names, ("n_kv_heads", "rope_theta", "rms_norm_eps", "weight_tying"))
    values.setdefault("n_kv_heads", values["n_heads"])
    rows = settings.get("embedding_size") or pick(settings, ("vocab_size",))["vocab_size"]
    return values | {"vocab_size": rows}


def _transformer(
    config: LladaConfig, make_head: Callable[[LladaConfig], nn.Linear]
) -> nn.ModuleDict:
    parts: dict[str, nn.Module] = {
        "wte": nn.Embedding(config.vocab_size, config.d_model),
        "blocks": nn.ModuleList(_Block(config) for _ in range(config.n_layers)),
        "ln_f": RMSNorm(config.d_model, config.rms_norm_eps),
    }
    if not config.weight_tying:
        parts["ff_out"] = make_head(config)
    return nn.ModuleDict(parts)


class _Block(nn.Module):
    def __init__(self, config: LladaConfig) -> None:
        super().__init__()
        self._config = config
        width, keys = config.d_model, config.n_kv_heads * config.head_width
        self.attn_norm = RMSNorm(width, config.rms_norm_eps)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, keys, bias=False)
        self.v_proj = nn.Linear(width, keys, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.ff_norm = RMSNorm(width, config.rms_norm_eps)
        self.ff_proj = nn.Linear(width, config.mlp_hidden_size, bias=False)
        self.up_proj = nn.Linear(width, config.mlp_hidden_size, bias=False)
        self.ff_out = nn.Linear(config.mlp_hidden_size, width, bias=False)

    def forward(self, x: Tensor, angles: Rotary, mask: Tensor | None) -> Tensor:
        y = self.attn_norm(x)
        query, key, value = self.q_proj(y), self.k_proj(y), self.v_proj(y)
        x = x + self.attn_out(attend(query, key, value, self._config.head_width, angles, mask))
        return x + swiglu(self.ff_norm(x), self.ff_proj, self.up_proj, self.ff_out)
