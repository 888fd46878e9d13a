"""A small image tokeniser of our own: patches, a learned codebook, and a decoder.

The code of a cell depends on its own pixels only, so two images have equal codes wherever they are
equal, and an edit changes codes exactly where it changes pixels. The decoder may see neighbouring
cells, which hides the seams between cells; `reach` limits how far, and so how far a changed code
affects the image. `training/vq.py` trains it.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from remask.models.checkpoints.sizes import Size
from remask.models.images.tokenizer import ImageTokenizer
from remask.models.ranges import Range, check_fields

CHUNK_ELEMENTS = 1 << 24
"""Maximum number of distances held at once."""


@dataclass(frozen=True, kw_only=True)
class PatchVQConfig:
    """Shape of the tokeniser."""

    patch: Annotated[int, Range("[1, 256]")] = 4
    """Pixels per side of a cell."""
    num_codes: Size = 256
    """Number of entries of the codebook."""
    code_width: Size = 16
    """Dimension of an entry."""
    width: Size = 96
    """Channels of the encoder and of the decoder."""
    blocks: Annotated[int, Range("[0, inf)")] = 2
    """Number of residual blocks of the encoder, and of the decoder."""
    reach: Annotated[int, Range("[0, inf)")] = 1
    """Number of cells to each side that the pixels of a cell depend on, at most `blocks`; with 0,
    each cell is decoded on its own."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.reach > self.blocks:
            raise ValueError(
                f"reach must be at most blocks, got {self.reach} with {self.blocks} blocks"
            )


class PatchVQ(ImageTokenizer):
    """An encoder of single cells, a codebook, and a decoder that sees neighbouring cells."""

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
        """The encoder's output per cell, before quantisation, [B, h, w, C]."""
        patches = F.pixel_unshuffle(2 * images - 1, self.patch)  # [B, 3 · patch², h, w]
        return self.encoder(patches).movedim(1, -1)

    def nearest(self, vectors: Tensor) -> Tensor:
        """Code of the nearest entry of the codebook to each vector, [..., C] to [...]."""
        book = self.codebook.detach()
        norms = book.square().sum(-1)
        parts = vectors.reshape(-1, book.shape[1]).split(max(1, CHUNK_ELEMENTS // self.num_codes))
        # The norm of the vector itself is the same for all entries.
        codes = [(norms - 2 * part @ book.T).argmin(-1) for part in parts]
        return torch.cat(codes).view(vectors.shape[:-1])

    def decode_vectors(self, vectors: Tensor) -> Tensor:
        """Vectors of cells, [B, h, w, C], to images [B, 3, H, W], not clipped to [0, 1]."""
        patches = self.decoder(vectors.movedim(-1, 1))
        return (F.pixel_shuffle(patches, self.patch) + 1) / 2

    def _encode(self, images: Tensor) -> Tensor:
        return self.nearest(self.vectors(images))

    def _decode(self, codes: Tensor) -> Tensor:
        return self.decode_vectors(F.embedding(codes, self.codebook))


class _Block(nn.Module):
    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.around = nn.Conv2d(width, width, kernel, padding=kernel // 2, padding_mode="replicate")
        self.mix = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(F.gelu(self.around(F.gelu(x))))
