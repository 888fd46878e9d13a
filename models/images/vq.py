"""A small image tokeniser of our own: patches, a learned codebook, and a decoder.

A cell's code depends on its own pixels alone, so what two pictures share has the same codes in both
and an edit shows in the codes exactly where it is. The decoder may look at the cells around, which
hides the seams; `reach` says how far, and so how far a changed code can be seen. Trained by
`training/vq.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.checkpoints.sizes import check_size, check_sizes
from remask.models.images.tokenizer import ImageTokenizer

CHUNK_ELEMENTS = 1 << 24
"""Distances held at once."""
MOST_PATCH = 256


@dataclass(frozen=True, kw_only=True)
class PatchVQConfig:
    """Shape of the tokeniser."""

    patch: int = 4
    """Pixels per side of a cell."""
    num_codes: int = 256
    code_width: int = 16
    """Numbers of a codebook entry."""
    width: int = 96
    blocks: int = 2
    """Residual blocks of the encoder, and of the decoder."""
    reach: int = 1
    """Cells to each side that a cell's picture depends on; 0 makes every cell by itself."""

    def __post_init__(self) -> None:
        check_size("patch", self.patch, MOST_PATCH)
        check_sizes(self, ("num_codes", "code_width", "width"))
        if not 0 <= self.reach <= self.blocks:
            raise ValueError(
                f"reach must lie in 0 .. blocks, got {self.reach} with {self.blocks} blocks"
            )


class PatchVQ(ImageTokenizer):
    """Encoder of single cells, codebook, decoder of cells with their neighbours."""

    kind = "patch_vq"

    def __init__(self, config: PatchVQConfig) -> None:
        super().__init__()
        self.config: PatchVQConfig = config
        self.num_codes, self.patch = config.num_codes, config.patch
        pixels = 3 * config.patch**2
        self.encoder = nn.Sequential(
            nn.Conv2d(pixels, config.width, 1),
            *(_Block(config.width, 1) for _ in range(config.blocks)),
            nn.Conv2d(config.width, config.code_width, 1),
        )
        self.codebook = nn.Parameter(torch.randn(config.num_codes, config.code_width))
        self.decoder = nn.Sequential(
            nn.Conv2d(config.code_width, config.width, 1),
            *(_Block(config.width, 3 if i < config.reach else 1) for i in range(config.blocks)),
            nn.Conv2d(config.width, pixels, 1),
        )

    def vectors(self, images: Tensor) -> Tensor:
        """What stands for each cell before it is rounded to the codebook, [B, h, w, C]."""
        patches = F.pixel_unshuffle(2 * images - 1, self.patch)  # [B, 3 · patch², h, w]
        return self.encoder(patches).movedim(1, -1)

    def nearest(self, vectors: Tensor) -> Tensor:
        """The nearest entry of the codebook to each vector, [...] for [..., C]."""
        book = self.codebook.detach()
        lengths = book.square().sum(-1)
        parts = vectors.reshape(-1, book.shape[1]).split(max(1, CHUNK_ELEMENTS // self.num_codes))
        # A vector's own length is the same for all entries.
        found = [(lengths - 2 * part @ book.T).argmin(-1) for part in parts]
        return torch.cat(found).view(vectors.shape[:-1])

    def pictures(self, vectors: Tensor) -> Tensor:
        """Cells as vectors of the codebook, [B, h, w, C], to pictures that may leave 0 .. 1."""
        patches = self.decoder(vectors.movedim(-1, 1))
        return (F.pixel_shuffle(patches, self.patch) + 1) / 2

    def _encode(self, images: Tensor) -> Tensor:
        return self.nearest(self.vectors(images))

    def _decode(self, codes: Tensor) -> Tensor:
        return self.pictures(F.embedding(codes, self.codebook))


class _Block(nn.Module):
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.around = nn.Conv2d(width, width, kernel, padding=kernel // 2, padding_mode="replicate")
        self.mix = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(F.gelu(self.around(F.gelu(x))))
