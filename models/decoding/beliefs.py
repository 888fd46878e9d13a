"""What a model believes at each position, boiled down from logits to a few numbers.

Decoders need, per position: the token to reveal, how confident that is, and how much more likely
MASK is than what stands there. These are read off the head a chunk of positions at a time, so that
the logits of a large vocabulary never exist for a whole batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from remask.models.backbones.backbone import Backbone
from remask.models.noise import Noise

Ranking = Literal["probability", "entropy", "margin"]

CHUNK_ELEMENTS = 1 << 24
"""Logits held at once."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the token to reveal is drawn from p(·) over V."""

    temperature: float = 0.0
    """0 takes the most likely token."""
    top_p: float = 1.0
    """Draw among the fewest tokens that hold this much probability."""
    late_ids: tuple[int, ...] = ()
    """Tokens of no confidence: revealed where they are likeliest, but after all others. An answer
    that ends too soon is cut short by its first sure token, its end."""
    never_ids: tuple[int, ...] = ()
    """Tokens that are not revealed at all."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}")
        if any(i < 0 for i in self.late_ids + self.never_ids):
            raise ValueError(f"ids must be 0 or more, got {self.late_ids + self.never_ids}")


@dataclass(frozen=True)
class Beliefs:
    """Per position, [B, N] each; where nothing was read, candidate is the present token."""

    candidate: Tensor
    """Token to reveal: drawn from V, so never MASK."""
    log_prob: Tensor
    """log p(candidate) over V, after top_p; -inf where nothing was read."""
    confidence: Tensor
    """What reveals are ranked by, higher first: log_prob, -entropy, or the lead p₁ - p₂; -inf for
    tokens that are to come late."""
    doubt: Tensor
    """log p(MASK) - log p(token), over V ∪ {MASK}: the current token, or the candidate where that
    is MASK; -inf where nothing was read."""
    mask_log_prob: Tensor
    """log p(MASK) over V ∪ {MASK}; -inf where nothing was read."""


@dataclass(frozen=True)
class Contrast:
    """What the model would say under other conditions, and how far to move away from it."""

    hidden: Tensor
    """Final hidden states, [B, N, D]; of any value in rows where it was not run."""
    scale: Tensor
    """s, [B, N]: logits l become l + s (l - l_other)."""
    is_run: Tensor
    """Rows that the model was run on, bool [B]."""


def read_beliefs(
    backbone: Backbone,
    hidden: Tensor,
    tokens: Tensor,
    where: Tensor,
    *,
    sampling: Sampling,
    ranking: Ranking,
    noise: Noise,
    contrasts: Sequence[Contrast] = (),
) -> Beliefs:
    """Apply the head at the chosen positions and boil its logits down.

    Args:
        backbone: Whose head to apply.
        hidden: Final hidden states, [B, N, D].
        tokens: Current state, [B, N].
        where: Positions to read, bool [B, N].
        sampling: How the candidate is drawn.
        ranking: What confidence means.
        noise: Randomness for drawing, by row, step and position.
        contrasts: Whatever the logits are moved away from.
    """
    rows, positions = where.nonzero(as_tuple=True)  # [P] each
    blank = torch.full(tokens.shape, -math.inf, device=tokens.device)
    beliefs = Beliefs(tokens.clone(), *(blank.clone() for _ in range(4)))
    forbidden = ~backbone.allowed_ids
    forbidden[list(sampling.never_ids)] = True
    late_ids = torch.tensor(sampling.late_ids, dtype=torch.long, device=tokens.device)
    for row, position in zip(
        *(x.split(max(1, CHUNK_ELEMENTS // backbone.vocab_size)) for x in (rows, positions)),
        strict=True,
    ):
        at = (row, position)
        logits = _contrasted(backbone, hidden, contrasts, at)  # [P, V]
        total = logits.logsumexp(-1)
        beliefs.mask_log_prob[at] = logits[:, backbone.mask_id] - total
        log_probs = _truncate(logits.masked_fill(forbidden, -math.inf).log_softmax(-1), sampling)
        candidate = _draw(log_probs, sampling, noise, row, position)
        log_prob = log_probs.gather(1, candidate[:, None])[:, 0]
        _check_finite(total, log_prob, row, position, noise)
        is_masked = tokens[at] == backbone.mask_id
        present = torch.where(is_masked, candidate, tokens[at])
        beliefs.doubt[at] = logits[:, backbone.mask_id] - logits.gather(1, present[:, None])[:, 0]
        beliefs.candidate[at] = candidate
        beliefs.log_prob[at] = log_prob
        confidence = _confidence(log_probs, log_prob, ranking)
        beliefs.confidence[at] = confidence.masked_fill(torch.isin(candidate, late_ids), -math.inf)
    return beliefs


def _contrasted(
    backbone: Backbone, hidden: Tensor, contrasts: Sequence[Contrast], at: tuple[Tensor, Tensor]
) -> Tensor:
    plain = backbone.head(hidden[at]).float()  # [P, V]
    logits = plain
    for contrast in contrasts:
        other = backbone.head(contrast.hidden[at]).float()
        # What no condition allows stays ruled out: -inf less -inf is no number.
        away = torch.where(plain == -math.inf, 0.0, plain - other)
        logits = logits + contrast.scale[at][:, None] * away
    return logits


def _truncate(log_probs: Tensor, sampling: Sampling) -> Tensor:
    """Leave the fewest tokens that hold `top_p`, renormalised."""
    if sampling.top_p == 1 or sampling.temperature == 0:
        return log_probs
    ordered, token = log_probs.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()  # mass of the likelier tokens
    cut = ordered.masked_fill(before >= sampling.top_p, -math.inf).log_softmax(-1)
    return torch.empty_like(cut).scatter_(-1, token, cut)


def _draw(
    log_probs: Tensor, sampling: Sampling, noise: Noise, row: Tensor, position: Tensor
) -> Tensor:
    if sampling.temperature == 0:
        return log_probs.argmax(-1)
    # argmax of log p + T·Gumbel draws from softmax(log p / T).
    gumbel = noise.gumbel(row, position, log_probs.shape[-1])
    return (log_probs.double() + sampling.temperature * gumbel).argmax(-1)


def _confidence(log_probs: Tensor, log_prob: Tensor, ranking: Ranking) -> Tensor:
    match ranking:
        case "probability":
            return log_prob
        case "entropy":
            return torch.special.entr(log_probs.exp()).sum(-1).neg()
        case "margin":
            best = log_probs.topk(min(2, log_probs.shape[-1]), dim=-1).values.exp()
            return best[:, 0] - best[:, 1:].sum(-1)


def _check_finite(
    total: Tensor, log_prob: Tensor, row: Tensor, position: Tensor, noise: Noise
) -> None:
    """-inf rules a token out and is fine; NaN, +inf, or nothing left to choose from is not."""
    bad = ~(total.isfinite() & log_prob.isfinite())
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"the model gave NaN or infinite logits at step {noise.step}, row "
            f"{int(noise.row_ids[row[first]])}, position {int(position[first])}; check the "
            "checkpoint and its dtype"
        )
