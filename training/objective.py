"""The losses: cross-entropy to the one best action at every editable position, SPEC §4, and
the ordinary masked-diffusion loss of the baselines.

A wrong visible token should become MASK, a masked position its target, a correct token itself. The
loss is always reported in these three parts, each with how often the decoder would do the right
thing. Logits are made a chunk of positions at a time and made again for the gradient, so that those
of a large vocabulary never exist for a whole batch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 1 << 24
"""Logits held at once."""
BINS = 15
"""Of p(MASK), for its calibration."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What is learned, and the weights of the loss and its optional terms."""

    kind: Literal["rm", "sft", "pretrain"] = "rm"
    """`rm` learns to revise; `sft` to fill in masked positions of E, the baseline; `pretrain` to
    fill in masked positions anywhere, for a base of one's own."""
    floor: float = 1e-8
    """ε: probabilities are floored here, so a position costs at most -log ε ≈ 18.4. The gradient is
    that of the unfloored loss: a pretrained model gives MASK less than ε, and must leave there."""
    edit_weight: float = 1.0
    """Weight of positions that move in their trajectory; those that keep their target have 1."""
    unlikelihood_weight: float = 0.0
    """Of -log(1 - p(MASK)) at positions that keep their target. For image edits."""
    ordering_weight: float = 0.0
    """Weight of max(0, margin - log p(target) + log p(w)) at masked positions that were wrong; w is
    the token that the position rejected last."""
    ordering_margin: float = 1.0
    text_dropout: float = 0.0
    """Share of rows that go without their instruction. For image edits that are to be guided."""
    image_dropout: float = 0.0
    """Share of rows that go without their source image."""

    def __post_init__(self) -> None:
        if not 0 < self.floor < 1:
            raise ValueError(f"objective.floor must lie in (0, 1), got {self.floor}")
        for name in ("edit_weight", "unlikelihood_weight", "ordering_weight", "ordering_margin"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"objective.{name} must be 0 or more, got {getattr(self, name)}")
        for name in ("text_dropout", "image_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"objective.{name} must lie in [0, 1], got {getattr(self, name)}")

    @property
    def drops(self) -> bool:
        """Do some rows go without a condition?"""
        return self.text_dropout > 0 or self.image_dropout > 0


@dataclass(frozen=True)
class Part:
    """One of the loss's parts: unweighted sums over its positions, scalars."""

    loss_sum: Tensor
    count: Tensor
    num_correct: Tensor
    """Positions at which the decoder's rule would take the oracle's action."""


@dataclass(frozen=True)
class OracleLoss:
    """The loss to minimise and what it is made of."""

    total: Tensor
    """Weighted mean over editable positions, plus the optional terms; differentiable."""
    reveal: Part
    """Where the state is MASK."""
    mask: Part
    """Where the state is a wrong token."""
    keep: Part
    """Where the state is the target."""
    unlikelihood: Tensor
    """Mean of the term, before its weight; 0 when off."""
    ordering: Tensor
    calibration: Tensor
    """Over visible positions by p(MASK) in BINS equal bins: how many, Σ p(MASK), how many are
    wrong; [3, BINS]. A calibrated belief has the last two alike in every bin."""


def oracle_action(state: Tensor, target: Tensor, mask_id: int) -> Tensor:
    """τ, [B, N]: `mask_id` where a visible token is wrong, the target elsewhere."""
    is_wrong = (state != target) & (state != mask_id)
    return torch.where(is_wrong, mask_id, target)


def oracle_loss(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    *,
    state: Tensor,
    target: Tensor,
    rejected: Tensor,
    moves: Tensor,
    editable: Tensor,
    mask_id: int,
    vocab_size: int,
    config: ObjectiveConfig,
    least_chunks: int = 1,
) -> OracleLoss:
    """Loss of a batch at its current states.

    Args:
        head: Hidden states [P, D] to logits [P, V].
        hidden: Final hidden states, [B, N, D].
        state: Tokens now, [B, N].
        target: Clean tokens x*, [B, N]; never MASK.
        rejected: The token each position gave up last, [B, N]; the target where there is none.
        moves: Positions that do not simply keep their target, bool [B, N].
        editable: E, bool [B, N].
        mask_id: Id of the mask token.
        vocab_size: V, which sets how many positions a chunk holds.
        config: Weights.
        least_chunks: The head is called at least so often.

    Returns:
        The loss; 0 with empty parts when nothing is editable.
    """
    state, target, rejected = state.long(), target.long(), rejected.long()
    impossible = (target == mask_id) & editable
    if impossible.any():
        place = impossible.nonzero()[0].tolist()
        raise ValueError(f"target must not be MASK (mask_id {mask_id}), but is at {place}")
    hidden, state, target, rejected, moves = (
        x[editable] for x in (hidden, state, target, rejected, moves)
    )  # [P, ...]
    loss, correct, belief, unlikely, order = _in_chunks(
        head, (hidden, state, target, rejected), mask_id, vocab_size, config, least_chunks
    )
    is_masked, is_kept = state == mask_id, state == target
    weight = torch.where(moves, config.edit_weight, 1.0)
    total = (weight * loss).sum() / weight.sum().clamp(min=1e-12)
    unlikelihood = ordering = loss.new_zeros(())
    if config.unlikelihood_weight:
        unlikelihood = _mean(unlikely, is_kept & ~moves)
        total = total + config.unlikelihood_weight * unlikelihood
    if config.ordering_weight:
        ordering = _mean(order, is_masked & (rejected != target))
        total = total + config.ordering_weight * ordering
    return OracleLoss(
        total,
        reveal=_part(loss, correct, is_masked),
        mask=_part(loss, correct, ~is_masked & ~is_kept),
        keep=_part(loss, correct, is_kept),
        unlikelihood=unlikelihood.detach(),
        ordering=ordering.detach(),
        calibration=_calibration(belief.detach(), ~is_masked, ~is_kept),
    )


def masked_loss(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    *,
    target: Tensor,
    maskable: Tensor,
    is_masked: Tensor,
    rate: Tensor,
    mask_id: int,
    vocab_size: int,
    config: ObjectiveConfig,
    least_chunks: int = 1,
) -> OracleLoss:
    """The masked-diffusion loss: -log p(target) where masked, weighted by 1 / (rate · length).

    Its expectation over rates and masks bounds a row's -log-likelihood per token from above.

    Args:
        head: Hidden states [P, D] to logits [P, V].
        hidden: Final hidden states, [B, N, D].
        target: Clean tokens x*, [B, N].
        maskable: Positions that may be masked, bool [B, N].
        is_masked: Those that are, bool [B, N].
        rate: Probability with which each was masked, [B].
        mask_id: Id of the mask token.
        vocab_size: V, which sets how many positions a chunk holds.
        config: The floor.
        least_chunks: The head is called at least so often.

    Returns:
        The loss, a mean over rows; all of it is in the `reveal` part.
    """
    where = is_masked & maskable
    weight = 1 / (rate * maskable.sum(1).clamp(min=1))  # [B]
    weight = weight[:, None].expand_as(where)[where]  # [P]
    target = target.long()[where]
    state = torch.full_like(target, mask_id)
    loss, correct, belief, *_ = _in_chunks(
        head, (hidden[where], state, target, target), mask_id, vocab_size, config, least_chunks
    )
    everywhere = torch.ones_like(correct)
    none = loss.new_zeros(())
    return OracleLoss(
        (weight * loss).sum() / len(rate),
        reveal=_part(loss, correct, everywhere),
        mask=_part(loss, correct, ~everywhere),
        keep=_part(loss, correct, ~everywhere),
        unlikelihood=none,
        ordering=none,
        calibration=_calibration(belief.detach(), ~everywhere, ~everywhere),
    )


def num_chunks(positions: int, vocab_size: int) -> int:
    """How often the head is called for so many positions."""
    return max(1, math.ceil(positions / _chunk_size(vocab_size)))


def _chunk_size(vocab_size: int) -> int:
    return max(1, CHUNK_ELEMENTS // vocab_size)


def _in_chunks(
    head: Callable[[Tensor], Tensor],
    positions: tuple[Tensor, ...],
    mask_id: int,
    vocab_size: int,
    config: ObjectiveConfig,
    least_chunks: int,
) -> tuple[Tensor, ...]:
    """`_terms` over all positions, [P] each, with the logits of some at a time."""
    size = _chunk_size(vocab_size)
    chunks = list(zip(*(x.split(size) for x in positions), strict=True))
    chunks += [tuple(x[:0] for x in positions)] * (least_chunks - len(chunks))
    terms = [_terms(head, chunk, mask_id, config, again=len(chunks) > 1) for chunk in chunks]
    return tuple(torch.cat(x) for x in zip(*terms, strict=True))


def _terms(
    head: Callable[[Tensor], Tensor],
    chunk: tuple[Tensor, ...],
    mask_id: int,
    config: ObjectiveConfig,
    *,
    again: bool,
) -> tuple[Tensor, ...]:
    """Per position of a chunk, [P] each: loss, is the action right, p(MASK), and the two optional
    terms.

    With `again`, logits are not kept for the gradient but computed once more.
    """

    def compute(
        hidden: Tensor, state: Tensor, target: Tensor, rejected: Tensor
    ) -> tuple[Tensor, ...]:
        logits = head(hidden).float()  # [P, V]
        log_probs = logits.log_softmax(-1)

        def at(ids: Tensor) -> Tensor:
            return log_probs.gather(-1, ids[:, None])[:, 0]

        label = oracle_action(state, target, mask_id)
        exact = -at(label)
        loss = exact + (exact.clamp(max=-math.log(config.floor)) - exact).detach()
        masked = log_probs[:, mask_id]
        revealed = logits.detach().index_fill(
            -1, torch.tensor(mask_id, device=state.device), -math.inf
        )
        acted = torch.where(
            state == mask_id,
            revealed.argmax(-1),
            torch.where(masked > at(state), mask_id, state),
        )
        # -log(1 - p) from log p; 1 - p is floored like every probability.
        unlikely = -torch.log((-torch.expm1(masked)).clamp(min=config.floor))
        order = (config.ordering_margin - at(target) + at(rejected)).clamp(min=0)
        return loss, acted == label, masked.exp(), unlikely, order

    hidden, state, target, rejected = chunk
    if again and torch.is_grad_enabled():
        return checkpoint(compute, hidden, state, target, rejected, use_reentrant=False)
    return compute(hidden, state, target, rejected)


def _part(loss: Tensor, correct: Tensor, where: Tensor) -> Part:
    return Part(loss.detach()[where].sum(), where.sum(), (correct & where).sum())


def _calibration(belief: Tensor, visible: Tensor, wrong: Tensor) -> Tensor:
    belief = belief.nan_to_num()  # a loss that is no number is reported elsewhere
    bins = (belief * BINS).long().clamp(max=BINS - 1)
    sums = torch.stack([visible.double(), belief.double() * visible, (visible & wrong).double()])
    return sums.new_zeros(3, BINS).index_add_(1, bins, sums)


def _mean(x: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, x, 0.0).sum() / where.sum().clamp(min=1)
