"""A small mask diffusion model of Sudoku boards, 9×9 or 4×4, with one token per cell.

Token 0 is MASK and token d is the digit d, so that a board with 0 for blanks is its own token ids.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.backbone import Backbone, register_backbone
from remask.models.checkpoints.sizes import Size
from remask.models.history import HistoryConfig
from remask.models.ranges import Range, check_fields

FEATURES = ("row", "column", "box")
RELATION_INIT = 3.0
"""Initial attention bias of a head towards cells of its relation."""


SIZES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "tiny": MappingProxyType({"layers": 2, "width": 64, "heads": 2, "feed_forward": 256}),
        "base": MappingProxyType({}),  # the defaults
        "large": MappingProxyType({"layers": 8, "width": 256, "heads": 8, "feed_forward": 1024}),
    }
)


@dataclass(frozen=True, kw_only=True)
class SudokuConfig:
    """Shape of the model. The defaults are the paper's: 4 layers, width 128, 0.81M parameters."""

    side: Annotated[int, Range("[4, 49]", "it is a square number, such as 4 or 9")] = 9
    """Cells per row, a square number. The limit keeps the table of all pairs of cells, of side⁴
    numbers, small."""
    layers: Size = 4
    width: Size = 128
    heads: Size = 4
    feed_forward: Size = 512
    loops: Annotated[int, Range("[1, 1024]")] = 1
    """Number of times that the layers are applied, with the same weights each time."""
    relations: bool = True
    """Give each head a learned attention bias towards cells of the same row, column or box."""

    def __post_init__(self) -> None:
        check_fields(self)
        if math.isqrt(self.side) ** 2 != self.side:
            raise ValueError(f"side must be a square number, such as 4 or 9, got {self.side}")
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width must be a multiple of twice the heads, got {self.width} and {self.heads}"
            )

    @property
    def box(self) -> int:
        return math.isqrt(self.side)

    @property
    def cells(self) -> int:
        return self.side**2


@register_backbone
class SudokuMDM(Backbone):
    """A pre-norm transformer that attends to the whole board."""

    kind = "sudoku"
    config_type = SudokuConfig
    sizes = SIZES
    mask_id = 0

    def __init__(self, config: SudokuConfig, history: HistoryConfig | None = None) -> None:
        super().__init__()
        self.config: SudokuConfig = config
        self.history = history or HistoryConfig()
        self.vocab_size = config.side + 1
        self.max_length = config.cells
        self.tokens = nn.Embedding(self.vocab_size, config.width)
        self.cell = nn.Embedding(config.cells, config.width)
        self.row = nn.Embedding(config.side, config.width)
        self.column = nn.Embedding(config.side, config.width)
        self.box = nn.Embedding(config.side, config.width)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.layers))
        if config.relations:
            # The first heads start with one relation each.
            bias = RELATION_INIT * torch.eye(config.heads, len(FEATURES))
            self.relations = nn.Parameter(bias.repeat(config.layers, 1, 1))
        self.norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, self.vocab_size)
        for name, index in cell_features(config.side).items():
            self.register_buffer(f"{name}_index", index, persistent=False)
            is_same = (index[:, None] == index).float()  # [N, N]
            self.register_buffer(f"same_{name}", is_same, persistent=False)

    @property
    def token_embedding(self) -> Tensor:
        return self.tokens.weight

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        if embeds.shape[1] != self.config.cells:
            raise ValueError(
                f"a {self.config.side}×{self.config.side} board has {self.config.cells} cells, got "
                f"{embeds.shape[1]}; load a model for boards of that size"
            )
        position = self.cell.weight + self.row(self.row_index) + self.column(self.column_index)
        x = embeds + position + self.box(self.box_index)  # [B, N, D]
        biases = [self._attention_bias(i, attention_mask) for i in range(len(self.blocks))]
        for _ in range(self.config.loops):
            for block, bias in zip(self.blocks, biases, strict=True):
                x = block(x, bias)
        return self.norm(x)

    def _attention_bias(self, layer: int, attention_mask: Tensor | None) -> Tensor | None:
        """Bias of the attention scores, [B or 1, H or 1, N or 1, N]; None without any bias."""
        bias = None
        if self.config.relations:
            same = torch.stack([getattr(self, f"same_{name}") for name in FEATURES])  # [3, N, N]
            bias = torch.einsum("hr,rnm->hnm", self.relations[layer], same.to(self.relations))[None]
        if attention_mask is None:
            return bias
        blocked = torch.where(attention_mask, 0.0, -torch.inf)[:, None, None, :]
        blocked = blocked.to(self.tokens.weight)
        return blocked if bias is None else bias + blocked

    def head(self, hidden: Tensor) -> Tensor:
        return self.out(hidden)


def cell_features(side: int) -> dict[str, Tensor]:
    """Row, column and box of each cell in reading order, [side²] each."""
    box = math.isqrt(side)
    cell = torch.arange(side**2, device="cpu")  # not on meta, where a model may be built
    row, column = cell // side, cell % side
    return {"row": row, "column": column, "box": row // box * box + column // box}


class _Block(nn.Module):
    def __init__(self, config: SudokuConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(config.width)
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.attention_out = nn.Linear(config.width, config.width)
        self.feed_norm = nn.LayerNorm(config.width)
        self.feed_in = nn.Linear(config.width, config.feed_forward)
        self.feed_out = nn.Linear(config.feed_forward, config.width)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = x + self._attend(self.attention_norm(x), bias)
        return x + self.feed_out(F.gelu(self.feed_in(self.feed_norm(x))))

    def _attend(self, x: Tensor, bias: Tensor | None) -> Tensor:
        batch, positions, width = x.shape
        heads = self.query_key_value(x).view(batch, positions, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # [B, H, N, D/H] each
        # torch's fused attention has no gradient for a learned bias, and its fallback does extra
        # work for rows that attend to nothing, which a board never has.
        scores = (query * query.shape[-1] ** -0.5) @ key.mT  # [B, H, N, N]
        if bias is not None:
            scores = scores + bias
        mixed = scores.softmax(-1).to(value.dtype) @ value
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, positions, width))
