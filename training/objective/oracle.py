"""The oracle loss of SPEC §4: cross-entropy to the best action at every editable position.

A wrong visible token should become MASK, a masked position its target, and a correct token should
stay. The loss is logged in these three parts, each with the share of positions at which the
revision rule would act correctly.
"""

from dataclasses import astuple

import torch
from torch import Tensor

from remask.models import RevisionPolicy
from remask.training.batch import Batch
from remask.training.objective.chunks import Head, best_token, floored_loss, map_logits, select
from remask.training.objective.config import ObjectiveConfig
from remask.training.objective.objective import Encode, Objective, register_objective
from remask.training.objective.result import BINS, OracleLoss, Part


@register_objective
class RevisionObjective(Objective):
    """Reflective Masking: the model learns to revise its own output."""

    kind = "rm"
    purpose = "to revise its own output (Reflective Masking)"

    def loss(self, batch: Batch, step: int, encode: Encode) -> OracleLoss:
        self.check_predictable(batch, batch.editable)
        segments, mask_id = batch.segments, self.backbone.mask_id
        return oracle_loss(
            self.backbone.head,
            encode(segments, self.horizon),
            state=segments.state_at(segments.step),
            target=batch.target,
            rejected=segments.last_rejected(mask_id),
            moves=segments.moves,
            editable=batch.editable,
            mask_id=mask_id,
            vocab_size=self.backbone.vocab_size,
            config=self.config,
            min_chunks=self.min_chunks,
        )

    def weight(self, batch: Batch) -> float:
        """The sum of the weights of the batch's editable positions."""
        segments, editable = batch.segments, batch.editable
        state = segments.state_at(segments.step)
        parts = _split_by_state(state, batch.target, self.backbone.mask_id)
        wheres = [part & x for x in (editable, editable & segments.moves) for part in parts]
        # Products of counts add up over any split of a batch; summing float32 weights would round.
        counts = torch.stack([where.sum() for where in wheres]).tolist()
        weights = astuple(self.config.state_weights)
        total, moving = (
            sum(w * n for w, n in zip(weights, part, strict=True))
            for part in (counts[:3], counts[3:])
        )
        return total + moving * (self.config.edit_weight - 1)

    def decode_start(self, batch: Batch) -> tuple[Tensor, RevisionPolicy]:
        """The first state of each trajectory, and the paper's rule."""
        return batch.segments.state_at(0), RevisionPolicy()


def oracle_action(state: Tensor, target: Tensor, mask_id: int) -> Tensor:
    """τ, [B, N]: `mask_id` where a visible token is wrong, the target elsewhere."""
    is_wrong = (state != target) & (state != mask_id)
    return torch.where(is_wrong, mask_id, target)


def oracle_loss(
    head: Head,
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
    min_chunks: int = 1,
) -> OracleLoss:
    """Compute the loss of a batch at its current states.

    Args:
        head: Hidden states [P, D] to logits [P, V].
        hidden: Final hidden states, [B, N, D].
        state: Current tokens, [B, N].
        target: Clean tokens x*, [B, N]; never MASK.
        rejected: The last token that each position rejected, [B, N]; the target if it rejected
            none.
        moves: Positions whose trajectory is more than their target, bool [B, N].
        editable: E, bool [B, N].
        mask_id: Id of the mask token.
        vocab_size: V, which sets the number of positions in a chunk.
        config: Floor, weights and margin.
        min_chunks: Least number of calls of the head.

    Returns:
        The loss, a weighted mean over editable positions; 0 with empty parts if there are none.
    """
    state, target, rejected = state.long(), target.long(), rejected.long()
    impossible = (target == mask_id) & editable
    if impossible.any():
        place = impossible.nonzero()[0].tolist()
        raise ValueError(f"target must not be MASK (mask_id {mask_id}), but is at {place}")

    def terms(
        logits: Tensor, state: Tensor, target: Tensor, rejected: Tensor
    ) -> tuple[Tensor, ...]:
        return _terms(logits, state, target, rejected, mask_id, config)

    hidden, state, target, rejected, moves = (
        x[editable] for x in (hidden, state, target, rejected, moves)
    )  # [P, ...]
    loss, is_correct, p_mask, unlikely, order = map_logits(
        terms, head, hidden, state, target, rejected, vocab_size=vocab_size, min_chunks=min_chunks
    )
    is_masked, is_wrong, is_kept = parts = _split_by_state(state, target, mask_id)
    weight = torch.where(moves, config.edit_weight, 1.0)
    for part, part_weight in zip(parts, astuple(config.state_weights), strict=True):
        weight = torch.where(part, weight * part_weight, weight)
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
        reveal=Part.sum_over(loss, is_correct, is_masked),
        mask=Part.sum_over(loss, is_correct, is_wrong),
        keep=Part.sum_over(loss, is_correct, is_kept),
        unlikelihood=unlikelihood.detach(),
        ordering=ordering.detach(),
        calibration=_calibration(p_mask.detach(), ~is_masked, ~is_kept),
    )


def _split_by_state(state: Tensor, target: Tensor, mask_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where a state is MASK, a wrong token and the target, bool like `state`; each position once.

    They are the parts `reveal`, `mask` and `keep`, in the order of `StateWeights`.
    """
    is_masked, is_kept = state == mask_id, state == target
    return is_masked, ~is_masked & ~is_kept, is_kept


def _terms(
    logits: Tensor,
    state: Tensor,
    target: Tensor,
    rejected: Tensor,
    mask_id: int,
    config: ObjectiveConfig,
) -> tuple[Tensor, ...]:
    """Per position, [P] each: loss, whether the action is correct, p(MASK), unlikelihood and
    ordering terms."""
    log_probs = logits.log_softmax(-1)
    label = oracle_action(state, target, mask_id)
    loss = floored_loss(select(log_probs, label), config.floor)
    log_mask = log_probs[:, mask_id]
    action = torch.where(
        state == mask_id,
        best_token(logits, mask_id),
        torch.where(log_mask > select(log_probs, state), mask_id, state),
    )
    # -log(1 - p) from log p; 1 - p has the same floor as every probability.
    unlikely = -torch.log((-torch.expm1(log_mask)).clamp(min=config.floor))
    order = config.ordering_margin - select(log_probs, target) + select(log_probs, rejected)
    return loss, action == label, log_mask.exp(), unlikely, order.clamp(min=0)


def _calibration(p_mask: Tensor, is_visible: Tensor, is_wrong: Tensor) -> Tensor:
    p_mask = p_mask.nan_to_num()  # the trainer reports a loss that is not a number
    bins = (p_mask * BINS).long().clamp(max=BINS - 1)
    rows = [is_visible.double(), p_mask.double() * is_visible, (is_visible & is_wrong).double()]
    sums = torch.stack(rows)
    return sums.new_zeros(3, BINS).index_add_(1, bins, sums)


def _mean(x: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, x, 0.0).sum() / where.sum().clamp(min=1)
