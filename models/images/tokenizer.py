"""The interface of image tokenisers: images to grids of codes, and back.

An image is divided into cells of `patch` × `patch` pixels, and each cell gets the index of an entry
of a codebook. `vq.py` has a tokeniser of our own, `published_vq.py` has Lumina-DiMOO's.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class ImageTokenizer(nn.Module, ABC):
    """Images to codes and codes to images, for any height and width that cells divide."""

    kind: ClassVar[str]
    """Name in a folder's config.json."""
    config: Any
    """Frozen dataclass of the settings that shape it."""
    num_codes: int
    """Number of entries of the codebook; codes lie in [0, num_codes)."""
    patch: int
    """Pixels per side of a cell."""

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Images, float [B, 3, H, W] in [0, 1], to codes, int64 [B, H / patch, W / patch]."""
        check_images(images, self.patch)
        weight = next(self.parameters())
        return self._encode(images.to(weight)).to(images.device)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes, [B, h, w], to images, float32 [B, 3, h · patch, w · patch] in [0, 1]."""
        check_codes(codes, self.num_codes)
        weight = next(self.parameters())
        images = self._decode(codes.to(weight.device, torch.long))
        return images.float().clamp(0, 1).to(codes.device)

    @abstractmethod
    def _encode(self, images: Tensor) -> Tensor: ...

    @abstractmethod
    def _decode(self, codes: Tensor) -> Tensor: ...


def check_images(images: Tensor, patch: int) -> None:
    """Raise ValueError unless this is a batch of images that cells divide."""
    if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
        raise ValueError(
            f"images must be float [B, 3, H, W], got {images.dtype} {list(images.shape)}"
        )
    height, width = images.shape[2:]
    if not height or not width or height % patch or width % patch:
        raise ValueError(
            f"images must have sides that are multiples of {patch} pixels, got {height} × {width}; "
            "resize or crop them"
        )
    if images.numel():
        low, high = (float(x) for x in images.aminmax())
        if not (low >= 0 and high <= 1):
            raise ValueError(f"images must lie in [0, 1], got values in [{low:.4g}, {high:.4g}]")


def check_codes(codes: Tensor, num_codes: int) -> None:
    """Raise ValueError unless this is a batch of grids of codes."""
    if codes.ndim != 3 or codes.is_floating_point() or codes.dtype == torch.bool:
        raise ValueError(f"codes must be integers [B, h, w], got {codes.dtype} {list(codes.shape)}")
    outside = (codes < 0) | (codes >= num_codes)
    if outside.any():
        place = outside.nonzero()[0].tolist()
        raise ValueError(
            f"codes must lie below num_codes {num_codes}, got {int(codes[tuple(place)])} at {place}"
        )
