"""LLaDA: a Llama-shaped transformer that attends both ways, with MASK among its tokens.

Parameters have the names and shapes of the published weights. Small ones of the same build serve as
text models of one's own.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    excluded_ids: tuple[int, ...] = ()
    """Special and unused ids, which are never revealed; MASK need not be among them."""

    def __post_init__(self) -> None:
        heads = ("d_model", "n_heads", "n_kv_heads")
        sizes = ("n_layers", "mlp_hidden_size", "vocab_size", "max_sequence_length")
        check_sizes(self, heads + sizes)
        check_positive(self, ("rope_theta", "rms_norm_eps"))
        check_heads(self.d_model, self.n_heads, self.n_kv_heads, heads)
        check_ids(self.mask_token_id, self.excluded_ids, self.vocab_size)

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
        self.excluded_ids = config.excluded_ids
        self.model = nn.ModuleDict({"transformer": _transformer(config, self.make_head)})
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
        check_length(embeds.shape[1], self.config.max_sequence_length)
        width, theta = self.config.head_width, self.config.rope_theta
        turn = rotary(embeds.shape[1], width, theta, embeds.device)
        mask = padding_mask(attention_mask)
        x = embeds
        for block in self.blocks:
            x = block(x, turn, mask)
        return self._parts["ln_f"](x)

    def head(self, hidden: Tensor) -> Tensor:
        if self.config.weight_tying:
            return F.linear(hidden, self.token_embedding)
        return self._parts["ff_out"](hidden)

    @staticmethod
    def make_head(config: LladaConfig) -> nn.Linear:
        """The head, where it is not the embedding."""
        return nn.Linear(config.d_model, config.vocab_size, bias=False)

    @property
    def _parts(self) -> nn.ModuleDict:
        return self.model["transformer"]  # pyright: ignore[reportReturnType]


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

    def forward(self, x: Tensor, turn: Turn, mask: Tensor | None) -> Tensor:
        y = self.attn_norm(x)
        query, key, value = self.q_proj(y), self.k_proj(y), self.v_proj(y)
        x = x + self.attn_out(attend(query, key, value, self._config.head_width, turn, mask))
        return x + swiglu(self.ff_norm(x), self.ff_proj, self.up_proj, self.ff_out)
