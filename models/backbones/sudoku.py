"""A small mask diffusion model of Sudoku boards: 9×9 or 4×4, a token per cell.

Token 0 is MASK and token d the digit d, so a board reads as it is written, blanks as 0.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.backbones.backbone import Backbone
from remask.models.checkpoints.sizes import check_size, check_sizes, shown
from remask.models.history import HistoryConfig

FEATURES = ("row", "column", "box")
RELATION_LEAN = 3.0
MOST_SIDE = 49
"""A model holds a table of all pairs of cells: side⁴ numbers."""
MOST_LOOPS = 1024


@dataclass(frozen=True, kw_only=True)
class SudokuConfig:
    """Shape of the model. The defaults are the paper's: 4 layers, width 128, 0.81M parameters."""

    side: int = 9
    """Cells per row; a square number. 9 and 4 are the boards people play."""
    layers: int = 4
    width: int = 128
    heads: int = 4
    feed_forward: int = 512
    loops: int = 1
    """Times the layers are gone through, with the same weights: deeper, for no more parameters."""
    relations: bool = True
    """Give each head a learned preference for cells of the same row, column or box."""

    def __post_init__(self) -> None:
        check_sizes(self, ("layers", "width", "heads", "feed_forward"))
        check_size("loops", self.loops, MOST_LOOPS)
        if not 4 <= self.side <= MOST_SIDE or math.isqrt(self.side) ** 2 != self.side:
            raise ValueError(
                f"side must be a square number in 4 .. {MOST_SIDE}, got {shown(self.side)}"
            )
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


class SudokuMDM(Backbone):
    """A pre-norm transformer that attends to the whole board."""

    kind = "sudoku"
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
            # Each head begins with a relation of its own, as far as there are any.
            lean = RELATION_LEAN * torch.eye(config.heads, len(FEATURES))
            self.relations = nn.Parameter(lean.repeat(config.layers, 1, 1))
        self.norm = nn.LayerNorm(config.width)
        self.out = nn.Linear(config.width, self.vocab_size)
        for name, where in cell_features(config.side).items():
            self.register_buffer(f"{name}_index", where, persistent=False)
            related = (where[:, None] == where).float()  # [N, N]
            self.register_buffer(f"same_{name}", related, persistent=False)

    @property
    def token_embedding(self) -> Tensor:
        return self.tokens.weight

    def hidden(self, embeds: Tensor, *, attention_mask: Tensor | None = None) -> Tensor:
        if embeds.shape[1] != self.config.cells:
            raise ValueError(
                f"a {self.config.side}×{self.config.side} board has {self.config.cells} cells, got "
                f"{embeds.shape[1]}; load a model of the board's size"
            )
        place = self.cell.weight + self.row(self.row_index) + self.column(self.column_index)
        x = embeds + place + self.box(self.box_index)  # [B, N, D]
        biases = [self._attention_bias(i, attention_mask) for i in range(len(self.blocks))]
        for _ in range(self.config.loops):
            for block, bias in zip(self.blocks, biases, strict=True):
                x = block(x, bias)
        return self.norm(x)

    def _attention_bias(self, layer: int, attention_mask: Tensor | None) -> Tensor | None:
        """What is added to attention scores, [B or 1, H or 1, N, N or 1]; none for nothing."""
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
    cell = torch.arange(side**2, device="cpu")  # real even where the model is built on meta
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
        # Written out: torch's fused attention has no gradient for a learned bias, and its fallback
        # spends more on rows without any key, which a board never has.
        scores = (query * query.shape[-1] ** -0.5) @ key.mT  # [B, H, N, N]
        if bias is not None:
            scores = scores + bias
        mixed = scores.softmax(-1).to(value.dtype) @ value
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, positions, width))
