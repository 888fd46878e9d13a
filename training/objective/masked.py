"""The masked-diffusion loss of the baselines: the model learns to fill in masked positions.

Each row draws a masking rate, each maskable position is masked with this probability, and the loss
is -log p(target) at masked positions. Past states are not seen.
"""

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from remask.kernels import Segments
from remask.models import Absorbing
from remask.models.noise import MASKING, RATE, KeyedNoise
from remask.training.batch import Batch
from remask.training.objective.chunks import Head, best_token, floored_loss, map_logits, select
from remask.training.objective.config import ObjectiveConfig
from remask.training.objective.objective import Encode, Objective, register_objective
from remask.training.objective.result import OracleLoss, Part

MIN_RATE = 1e-3
"""Masking rates are uniform on [MIN_RATE, 1]."""


class _MaskedObjective(Objective):
    uses_history = False

    @abstractmethod
    def maskable(self, batch: Batch) -> Tensor:
        """Positions that may be masked, bool [B, N]."""

    def loss(self, batch: Batch, step: int, encode: Encode) -> OracleLoss:
        maskable, target = self.maskable(batch), batch.target
        noise = KeyedNoise(self.seed, step, batch.row_ids)
        rate = MIN_RATE + (1 - MIN_RATE) * noise.uniform(1, RATE)[:, 0]  # [B]
        is_masked = maskable & (noise.uniform(maskable.shape[1], MASKING) < rate[:, None])
        # A trajectory of one step: MASK now, the target next.
        segments = Segments(
            torch.stack([torch.full_like(target, self.backbone.mask_id), target]),
            is_masked[None].to(target.dtype),
            torch.zeros_like(batch.segments.step),
        )
        return masked_loss(
            self.backbone.head,
            encode(segments, 1),
            target=target,
            maskable=maskable,
            is_masked=is_masked,
            rate=rate.float(),
            mask_id=self.backbone.mask_id,
            vocab_size=self.backbone.vocab_size,
            config=self.config,
            min_chunks=self.min_chunks,
        )

    def decode_start(self, batch: Batch) -> tuple[Tensor, Absorbing]:
        """The target with the positions that move masked: what a reviser must locate is given."""
        start = batch.target.masked_fill(batch.segments.moves, self.backbone.mask_id)
        return start, Absorbing()


@register_objective
class FineTuningObjective(_MaskedObjective):
    """Supervised fine-tuning: the model learns to fill in masked editable positions."""

    kind = "sft"
    purpose = "to fill in masked positions of its responses (masked-diffusion fine-tuning)"

    def maskable(self, batch: Batch) -> Tensor:
        self.check_predictable(batch, batch.editable)
        return batch.editable


@register_objective
class PretrainingObjective(_MaskedObjective):
    """Pretraining: the model learns to fill in masked positions anywhere."""

    kind = "pretrain"
    purpose = "to fill in masked positions (masked-diffusion pretraining)"

    def maskable(self, batch: Batch) -> Tensor:
        return batch.is_token & self.backbone.is_predictable(batch.target)


def masked_loss(
    head: Head,
    hidden: Tensor,
    *,
    target: Tensor,
    maskable: Tensor,
    is_masked: Tensor,
    rate: Tensor,
    mask_id: int,
    vocab_size: int,
    config: ObjectiveConfig,
    min_chunks: int = 1,
) -> OracleLoss:
    """Compute -log p(target) at masked positions, weighted by 1 / (rate · length).

    Its expectation over rates and masks is an upper bound of a row's negative log-likelihood per
    token.

    Args:
        head: Hidden states [P, D] to logits [P, V].
        hidden: Final hidden states, [B, N, D].
        target: Clean tokens x*, [B, N].
        maskable: Positions that may be masked, bool [B, N].
        is_masked: Positions that are masked, bool [B, N].
        rate: Probability with which each row's positions were masked, [B].
        mask_id: Id of the mask token.
        vocab_size: V, which sets the number of positions in a chunk.
        config: The floor.
        min_chunks: Least number of calls of the head.

    Returns:
        The loss, a mean over rows; all of it is in the `reveal` part.
    """
    where = is_masked & maskable
    weight = 1 / (rate * maskable.sum(1).clamp(min=1))  # [B]
    weight = weight[:, None].expand_as(where)[where]  # [P]

    def terms(logits: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        loss = floored_loss(select(logits.log_softmax(-1), target), config.floor)
        return loss, best_token(logits, mask_id) == target

    loss, is_correct = map_logits(
        terms,
        head,
        hidden[where],
        target.long()[where],
        vocab_size=vocab_size,
        min_chunks=min_chunks,
    )
    reveal = Part.sum_over(loss, is_correct, torch.ones_like(is_correct))
    total = (weight * loss).sum() / len(rate)
    return replace(OracleLoss.without_parts(total), reveal=reveal)
