"""The likelihood of a text after a prefix, for a model that predicts masked tokens.

-log p(target | prefix) is bounded from above by an expectation: draw k ~ U{1..L}, mask k of the
target's L tokens at once, and take L/k times the sum of their -log p. The expectation is estimated
from a fixed number of draws, over which k is spread evenly. Draws depend on the seed and the tokens
alone, so a value does not depend on what else is scored.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from remask.models import Backbone, noise
from remask.models.decoding.beliefs import CHUNK_ELEMENTS
from remask.models.history import HistoryState
from remask.models.noise import KeyedNoise
from remask.models.ranges import Range, check_fields


@dataclass(frozen=True, kw_only=True)
class Likelihood:
    """Settings of the Monte Carlo estimate."""

    mc_num: Annotated[int, Range("[1, inf)")] = 128
    """Number of draws; a target of one token takes a single draw, and is exact."""
    cfg: Annotated[float, Range("[0, inf)")] = 0.0
    """Classifier-free guidance c: logits become l_u + (c + 1)(l - l_u), where l_u comes from a
    second pass whose prefix is masked."""
    seed: Annotated[int, Range("[0, 2^63)")] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def draws(self, length: int) -> int:
        return 1 if length == 1 else self.mc_num

    def forward_passes(self, length: int) -> int:
        """Number of forward passes for one target of `length` tokens."""
        return self.draws(length) * (2 if self.cfg else 1)


@torch.inference_mode()
def log_likelihood(
    backbone: Backbone,
    prefix: Sequence[int],
    target: Sequence[int],
    config: Likelihood,
    *,
    batch_size: int = 32,
) -> float:
    """Estimate a lower bound of log p(target | prefix).

    p is normalised over all tokens but MASK, which no text contains.
    """
    is_masked = draw_masks(prefix, target, config)  # [draws, L]
    weights = len(target) / is_masked.sum(1).double()  # [draws]
    total = 0.0
    for masks, weight in zip(is_masked.split(batch_size), weights.split(batch_size), strict=True):
        log_probs = masked_log_probs(backbone, prefix, target, masks, config.cfg)  # [b, L]
        total += float((log_probs.sum(1) * weight).sum())
    return total / len(is_masked)


def draw_masks(prefix: Sequence[int], target: Sequence[int], config: Likelihood) -> Tensor:
    """Which of the target's tokens are masked in each draw, bool [draws, L]."""
    length, draws = len(target), config.draws(len(target))
    key = f"{config.seed}:{list(prefix)}:{list(target)}".encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1
    random = KeyedNoise(seed, 0, torch.arange(draws))
    start = int(
        KeyedNoise(seed, 0, torch.zeros(1, dtype=torch.long)).uniform(1, noise.RATE) * length
    )
    counts = (start + torch.arange(draws) * length // draws) % length + 1  # every k equally often
    order = random.uniform(length, noise.MASKING).argsort(1).argsort(1)
    return order < counts[:, None]


def masked_log_probs(
    backbone: Backbone, prefix: Sequence[int], target: Sequence[int], masks: Tensor, cfg: float
) -> Tensor:
    """log p of the target's tokens where they are masked, 0 elsewhere, [b, L] float64.

    Args:
        backbone: The model.
        prefix: Token ids before the target.
        target: Token ids, [L].
        masks: Which tokens of the target are masked, bool [b, L].
        cfg: Guidance, 0 for none.
    """
    device = backbone.token_embedding.device
    before = torch.tensor(prefix, dtype=torch.long).expand(len(masks), -1)
    wanted = torch.tensor(target, dtype=torch.long).expand(len(masks), -1)
    noisy = wanted.masked_fill(masks, backbone.mask_id)
    hidden = [_hidden(backbone, torch.cat([before, noisy], 1).to(device), len(prefix))]
    if cfg:
        blank = torch.full_like(before, backbone.mask_id)
        hidden.append(_hidden(backbone, torch.cat([blank, noisy], 1).to(device), len(prefix)))
    log_probs = torch.zeros(masks.shape, dtype=torch.float64)
    rows, places = masks.nonzero(as_tuple=True)
    size = max(1, CHUNK_ELEMENTS // backbone.vocab_size)
    for row, place in zip(rows.split(size), places.split(size), strict=True):
        logits = [backbone.head(x[row.to(device), place.to(device)]).float() for x in hidden]
        guided = logits[-1] + (cfg + 1) * (logits[0] - logits[-1]) if cfg else logits[0]
        guided[:, backbone.mask_id] = -math.inf
        own = wanted[row, place].to(device)[:, None]
        log_probs[row, place] = guided.log_softmax(-1).gather(1, own)[:, 0].double().cpu()
    return log_probs


def _hidden(backbone: Backbone, ids: Tensor, first: int) -> Tensor:
    """Final hidden states of a state without a history, from position `first` on."""
    embeds = HistoryState(backbone.history, backbone.token_embedding).update(ids)
    return backbone.hidden(embeds.to(backbone.token_embedding.dtype))[:, first:]
