"""How an image tokeniser of our own (`models/images/vq.py`) is learned from pictures.

Encoder and decoder learn by gradient through the rounding; codebook entries follow the running mean
of the vectors they stand for, and an entry that stands for nothing moves to where rounding hurts
most. The same pictures, settings and seed give the same tokeniser.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from remask.models import ImageTokenizer, PatchVQ, PatchVQConfig
from remask.models.checkpoints.sizes import build

Pictures = NDArray[np.uint8]
"""[N, H, W, 3]."""


@dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """How the tokeniser is learned."""

    steps: int = 1500
    batch_size: int = 32
    """Pictures of a step."""
    lr: float = 3e-3
    """Highest rate of AdamW; it rises over the first twentieth of the steps, then falls to 0."""
    commitment: float = 0.25
    """Weight of the distance between a cell's vector and its entry."""
    codebook_decay: float = 0.98
    """Of the running means that entries follow."""
    dead_below: float = 0.5
    """An entry that stands for fewer cells a step, in the running mean, moves elsewhere."""

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError(
                f"steps and batch_size must be at least 1, got {self.steps}, {self.batch_size}"
            )
        for name in ("lr", "commitment", "dead_below"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")
        if not 0 <= self.codebook_decay < 1:
            raise ValueError(f"codebook_decay must lie in [0, 1), got {self.codebook_decay}")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        rising = min(1.0, (step + 1) / max(1, self.steps // 20))
        return self.lr * rising * (1 + math.cos(math.pi * step / self.steps)) / 2


def learn(
    pictures: Pictures,
    shape: PatchVQConfig,
    config: LearnConfig,
    seed: int,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> PatchVQ:
    """Train a tokeniser on pictures of one size.

    Args:
        pictures: 8-bit RGB, [N, H, W, 3].
        shape: Of the tokeniser.
        config: Of the training.
        seed: Of weights, order and restarts.
        watch: Called after every step with its number and mean squared error.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = build(lambda: PatchVQ(shape))
    book = _Codebook(tokenizer.codebook, config)
    spread = max(_variance(pictures) / 255**2, 1e-6)  # so that the loss is of one scale for all
    learned = [*tokenizer.encoder.parameters(), *tokenizer.decoder.parameters()]
    optimizer = torch.optim.AdamW(learned, weight_decay=0.0, betas=(0.9, 0.99))
    for step in range(config.steps):
        chosen = torch.randint(len(pictures), (config.batch_size,), generator=generator)
        images = to_images(pictures[chosen.numpy()])
        vectors = tokenizer.vectors(images)  # [B, h, w, C]
        if step == 0:
            book.begin(vectors.detach(), generator)
        codes = tokenizer.nearest(vectors.detach())
        entries = F.embedding(codes, tokenizer.codebook.detach())
        rounded = vectors + (entries - vectors).detach()  # its gradient goes straight through
        error = F.mse_loss(tokenizer.decode_vectors(rounded), images)
        loss = error / spread + config.commitment * F.mse_loss(vectors, entries)
        optimizer.param_groups[0]["lr"] = config.rate(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.follow(vectors.detach(), codes, generator)
        watch(step + 1, float(error.detach()))
    return tokenizer.eval().requires_grad_(False)


def to_images(pictures: Pictures) -> Tensor:
    """8-bit pictures, [N, H, W, 3], as tokenisers take them: float32 [N, 3, H, W] in 0 .. 1."""
    return torch.from_numpy(pictures).movedim(-1, 1).float() / 255


def psnr(tokenizer: ImageTokenizer, pictures: Pictures) -> float:
    """Peak signal-to-noise ratio of pictures encoded and decoded, in dB, over all their pixels."""
    total = 0.0
    for i in range(0, len(pictures), 64):
        images = to_images(pictures[i : i + 64])
        total += float((tokenizer.decode(tokenizer.encode(images)) - images).square().sum())
    return -10 * math.log10(max(total / pictures.size, 1e-12))


def _variance(pictures: Pictures) -> float:
    """Of all channels, one picture at a time: in floats all of them could be too many."""
    total = int(pictures.sum(dtype=np.int64))
    squares = sum(int(np.square(x, dtype=np.int64).sum()) for x in pictures)
    return squares / pictures.size - (total / pictures.size) ** 2


class _Codebook:
    """Entries as running means of the vectors they stand for."""

    def __init__(self, entries: Tensor, config: LearnConfig) -> None:
        self._entries, self._config = entries, config
        self._counts = torch.ones(len(entries))
        self._sums = torch.empty_like(entries)

    @torch.no_grad()
    def begin(self, vectors: Tensor, generator: torch.Generator) -> None:
        """Entries among the first vectors, spread out: each new one far from those before."""
        flat = vectors.reshape(-1, vectors.shape[-1])
        distance = torch.full((len(flat),), math.inf)
        chosen = int(torch.randint(len(flat), (1,), generator=generator))
        for i in range(len(self._entries)):
            self._entries[i] = flat[chosen]
            distance = distance.minimum((flat - flat[chosen]).square().sum(-1))
            chosen = int(_draw(distance, 1, generator))
        self._sums = self._entries.detach().clone()

    @torch.no_grad()
    def follow(self, vectors: Tensor, codes: Tensor, generator: torch.Generator) -> None:
        """Take in a step's vectors, and move entries that stand for nothing."""
        flat, codes = vectors.reshape(-1, vectors.shape[-1]), codes.reshape(-1)
        keep = self._config.codebook_decay
        counts = torch.bincount(codes, minlength=len(self._entries)).float()
        sums = torch.zeros_like(self._sums).index_add_(0, codes, flat)
        self._counts = keep * self._counts + (1 - keep) * counts
        self._sums = keep * self._sums + (1 - keep) * sums
        dead = (self._counts < self._config.dead_below).nonzero()[:, 0]
        if len(dead):
            distance = (flat - self._entries[codes]).square().sum(-1)
            self._sums[dead] = flat[_draw(distance, len(dead), generator)]
            self._counts[dead] = 1.0
        self._entries.copy_(self._sums / self._counts[:, None].clamp(min=1e-12))


def _draw(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Indices, each with a probability in proportion to its weight; any, if all weights are 0."""
    # Searching the running sum takes any number of weights; torch.multinomial stops at 2^24.
    line = (weight.double() + 1e-12).cumsum(0)
    at = torch.rand(count, generator=generator, dtype=torch.float64) * line[-1]
    return torch.searchsorted(line, at).clamp(max=len(weight) - 1)
