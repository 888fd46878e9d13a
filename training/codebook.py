"""How our own image tokenizer (`models/images/vq.py`) is trained.

Encoder and decoder are trained with a straight-through gradient; codebook entries follow the moving
average of the vectors assigned to them, and an entry without vectors is moved to a vector with a
large quantization error. The same pictures, settings and seed give the same tokenizer.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from remask.models import ImageTokenizer, PatchVQ, PatchVQConfig
from remask.models.checkpoints.sizes import build
from remask.models.ranges import Range, check_fields

Pictures = NDArray[np.uint8]
"""[N, H, W, 3]."""


@dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """How the tokenizer is trained."""

    steps: Annotated[int, Range("[1, inf)")] = 1500
    """Number of updates."""
    batch_size: Annotated[int, Range("[1, inf)")] = 32
    """Pictures per step."""
    lr: Annotated[float, Range("[0, inf)")] = 3e-3
    """AdamW's peak learning rate, with a warm-up over the first 5 % of the steps and cosine
    decay."""
    commitment: Annotated[float, Range("[0, inf)")] = 0.25
    """Weight of the commitment loss, the squared distance of a vector from its entry."""
    codebook_decay: Annotated[float, Range("[0, 1)")] = 0.98
    """Decay of the moving averages that entries follow."""
    dead_below: Annotated[float, Range("[0, inf)")] = 0.5
    """An entry with fewer vectors per step than this, in the moving average, is restarted."""

    def __post_init__(self) -> None:
        check_fields(self, "learning.")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        warmup = min(1.0, (step + 1) / max(1, self.steps // 20))
        return self.lr * warmup * (1 + math.cos(math.pi * step / self.steps)) / 2


def learn(
    pictures: Pictures,
    shape: PatchVQConfig,
    config: LearnConfig,
    seed: int,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> PatchVQ:
    """Train a tokenizer on pictures of one size.

    Args:
        pictures: 8-bit RGB, [N, H, W, 3].
        shape: Settings of the tokenizer.
        config: Settings of the training.
        seed: Seed of initial weights, order and restarted entries.
        watch: Called after every step with the step and its mean squared error.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = build(lambda: PatchVQ(shape))
    book = _Codebook(tokenizer.codebook, config)
    spread = max(_variance(pictures) / 255**2, 1e-6)  # makes the loss independent of contrast
    learned = [*tokenizer.encoder.parameters(), *tokenizer.decoder.parameters()]
    optimizer = torch.optim.AdamW(learned, weight_decay=0.0, betas=(0.9, 0.99))
    for step in range(config.steps):
        indices = torch.randint(len(pictures), (config.batch_size,), generator=generator)
        images = to_images(pictures[indices.numpy()])
        vectors = tokenizer.vectors(images)  # [B, h, w, C]
        if step == 0:
            book.initialize(vectors.detach(), generator)
        codes = tokenizer.nearest(vectors.detach())
        entries = F.embedding(codes, tokenizer.codebook.detach())
        rounded = vectors + (entries - vectors).detach()  # straight-through gradient
        error = F.mse_loss(tokenizer.decode_vectors(rounded), images)
        loss = error / spread + config.commitment * F.mse_loss(vectors, entries)
        optimizer.param_groups[0]["lr"] = config.rate(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        book.update(vectors.detach(), codes, generator)
        watch(step + 1, float(error.detach()))
    return tokenizer.eval().requires_grad_(False)


def to_images(pictures: Pictures) -> Tensor:
    """Convert 8-bit pictures [N, H, W, 3] to tokenizer input: float32 [N, 3, H, W] in [0, 1]."""
    return torch.from_numpy(pictures).movedim(-1, 1).float() / 255


def psnr(tokenizer: ImageTokenizer, pictures: Pictures) -> float:
    """Peak signal-to-noise ratio in dB of encoded and decoded pictures, over all pixels."""
    total = 0.0
    for i in range(0, len(pictures), 64):
        images = to_images(pictures[i : i + 64])
        total += float((tokenizer.decode(tokenizer.encode(images)) - images).square().sum())
    return -10 * math.log10(max(total / pictures.size, 1e-12))


def _variance(pictures: Pictures) -> float:
    """Variance over all pixels and channels, picture by picture to save memory."""
    total = int(pictures.sum(dtype=np.int64))
    squares = sum(int(np.square(x, dtype=np.int64).sum()) for x in pictures)
    return squares / pictures.size - (total / pictures.size) ** 2


class _Codebook:
    """Entries as moving averages of the vectors assigned to them."""

    def __init__(self, entries: Tensor, config: LearnConfig) -> None:
        self._entries, self._config = entries, config
        self._counts = torch.ones(len(entries))
        self._sums = torch.empty_like(entries)

    @torch.no_grad()
    def initialize(self, vectors: Tensor, generator: torch.Generator) -> None:
        """Choose entries among the first vectors by k-means++."""
        flat = vectors.reshape(-1, vectors.shape[-1])
        distance = torch.full((len(flat),), math.inf)
        chosen = int(torch.randint(len(flat), (1,), generator=generator))
        for i in range(len(self._entries)):
            self._entries[i] = flat[chosen]
            distance = distance.minimum((flat - flat[chosen]).square().sum(-1))
            chosen = int(_draw(distance, 1, generator))
        self._sums = self._entries.detach().clone()

    @torch.no_grad()
    def update(self, vectors: Tensor, codes: Tensor, generator: torch.Generator) -> None:
        """Add a step's vectors to the moving averages, and restart entries that have too few."""
        flat, codes = vectors.reshape(-1, vectors.shape[-1]), codes.reshape(-1)
        decay = self._config.codebook_decay
        counts = torch.bincount(codes, minlength=len(self._entries)).float()
        sums = torch.zeros_like(self._sums).index_add_(0, codes, flat)
        self._counts = decay * self._counts + (1 - decay) * counts
        self._sums = decay * self._sums + (1 - decay) * sums
        dead = (self._counts < self._config.dead_below).nonzero()[:, 0]
        if len(dead):
            distance = (flat - self._entries[codes]).square().sum(-1)
            self._sums[dead] = flat[_draw(distance, len(dead), generator)]
            self._counts[dead] = 1.0
        self._entries.copy_(self._sums / self._counts[:, None].clamp(min=1e-12))


def _draw(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sample indices with probability proportional to weight; uniform if all weights are 0."""
    # A search in the cumulative sum has no size limit; torch.multinomial's is 2^24.
    cumulative = (weight.double() + 1e-12).cumsum(0)
    at = torch.rand(count, generator=generator, dtype=torch.float64) * cumulative[-1]
    return torch.searchsorted(cumulative, at).clamp(max=len(weight) - 1)
