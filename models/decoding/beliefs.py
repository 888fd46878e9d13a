"""What a model predicts at each position, reduced from logits to a few numbers.

A decoder needs, per position, the token to reveal, the confidence in it, and how much likelier MASK
is than the current token. The head is applied to a chunk of positions at a time, so that the logits
of a large vocabulary never exist for a whole batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from remask.models.backbones.backbone import Backbone
from remask.models.noise import KeyedNoise
from remask.models.ranges import Range, check_fields

Ranking = Literal["probability", "entropy", "margin"]

CHUNK_ELEMENTS = 1 << 24
"""Maximum number of logits held at once."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the token to reveal is drawn from p(·) over V."""

    temperature: Annotated[float, Range("[0, inf)")] = 0.0
    """0 takes the most likely token."""
    top_p: Annotated[float, Range("(0, 1]")] = 1.0
    """Draw from the smallest set of tokens whose probabilities sum to at least this."""
    late_ids: Annotated[tuple[int, ...], Range("[0, inf)")] = ()
    """Tokens whose confidence counts as -inf, so that they are revealed after all others. End
    tokens are often the model's most confident prediction, and one revealed early cuts an answer
    short."""
    never_ids: Annotated[tuple[int, ...], Range("[0, inf)")] = ()
    """Tokens that are never revealed."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Beliefs:
    """Predictions per position, [B, N] each, made only where the policy reads them."""

    candidate: Tensor
    """Token to reveal, drawn from V and so never MASK; the current token where not read."""
    log_prob: Tensor
    """log p(candidate) over V, after top_p; -inf where not read."""
    confidence: Tensor
    """Rank of reveals, higher first: log_prob, -entropy, or the lead p₁ - p₂; -inf for
    `Sampling.late_ids` and where not read."""
    doubt: Tensor
    """log p(MASK) - log p(token) over V ∪ {MASK}, for the current token, or for the candidate where
    the current token is MASK; -inf where not read."""
    mask_log_prob: Tensor
    """log p(MASK) over V ∪ {MASK}; -inf where not read."""


@dataclass(frozen=True)
class Contrast:
    """The model's output under another condition, and how far logits move away from it."""

    hidden: Tensor
    """Final hidden states under that condition, [B, N, D]; undefined in rows that were not run."""
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
    noise: KeyedNoise,
    contrasts: Sequence[Contrast] = (),
) -> Beliefs:
    """Apply the head at the chosen positions and reduce its logits to beliefs.

    Args:
        backbone: The model whose head is applied.
        hidden: Final hidden states, [B, N, D].
        tokens: Current state, [B, N].
        where: Positions to read, bool [B, N].
        sampling: How the candidate is drawn.
        ranking: What confidence means.
        noise: Randomness for draws, keyed by row, step and position.
        contrasts: Outputs under other conditions, which the logits are moved away from.
    """
    rows, positions = where.nonzero(as_tuple=True)  # [P] each
    not_read = torch.full(tokens.shape, -math.inf, device=tokens.device)
    beliefs = Beliefs(tokens.clone(), *(not_read.clone() for _ in range(4)))
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
        token = torch.where(is_masked, candidate, tokens[at])
        beliefs.doubt[at] = logits[:, backbone.mask_id] - logits.gather(1, token[:, None])[:, 0]
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
        # -inf under both conditions stays -inf; the difference would be NaN.
        away = torch.where(plain == -math.inf, 0.0, plain - other)
        logits = logits + contrast.scale[at][:, None] * away
    return logits


def _truncate(log_probs: Tensor, sampling: Sampling) -> Tensor:
    """Keep the smallest set of tokens that holds `top_p`, renormalised."""
    if sampling.top_p == 1 or sampling.temperature == 0:
        return log_probs
    ordered, token = log_probs.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()  # probability of all likelier tokens
    cut = ordered.masked_fill(before >= sampling.top_p, -math.inf).log_softmax(-1)
    return torch.empty_like(cut).scatter_(-1, token, cut)


def _draw(
    log_probs: Tensor, sampling: Sampling, noise: KeyedNoise, row: Tensor, position: Tensor
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
    total: Tensor, log_prob: Tensor, row: Tensor, position: Tensor, noise: KeyedNoise
) -> None:
    """Raise ValueError for NaN or +inf, or if every token is -inf; a single -inf is valid."""
    bad = ~(total.isfinite() & log_prob.isfinite())
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ValueError(
            f"the model gave NaN or infinite logits at step {noise.step}, row "
            f"{int(noise.row_ids[row[first]])}, position {int(position[first])}; check the "
            "checkpoint and its dtype"
        )
