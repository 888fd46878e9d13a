"""The authors' released image decoder: first choose the cells to edit, then fill them in.

It differs from the paper's rule (`revision_rule.py`); both are offered so that they can be
compared. The authors apply guidance by text, and in the second phase alone:
`Guidance(text=4.0, at="masked")`.
"""

import math
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from remask.models import noise
from remask.models.decoding.beliefs import Sampling
from remask.models.decoding.policy import DecodeState, Observation, Policy, register_policy
from remask.models.decoding.selection import highest
from remask.models.ranges import Range, check_fields


@register_policy
@dataclass(frozen=True, kw_only=True)
class TwoPhase(Policy):
    """Re-mask cells that are almost certainly wrong, then reveal by MaskGIT's cosine schedule.

    With n cells to fill, n · cos(π/2 · k/K) of them are still masked after k of K steps, and at
    least one until the last step. Steps that would reveal nothing are skipped. Each row enters its
    second phase on its own, after a step that re-masked nothing or after `mask_steps`.
    """

    name = "two_phase"

    mask_steps: Annotated[int, Range("[1, inf)")] = 8
    """Maximum number of steps of the first phase."""
    fill_steps: Annotated[int, Range("[1, inf)")] = 8
    """K, maximum number of steps of the second phase."""
    threshold: Annotated[float, Range("[0, 1)")] = 0.9
    """A cell is re-masked if p(MASK) exceeds this and exceeds p(token)."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    """How codes are drawn; the temperature also scales the noise in the order of reveals."""

    def __post_init__(self) -> None:
        check_fields(self)

    def reads(self, state: DecodeState) -> Tensor:
        return torch.where(self._is_filling(state), state.is_masked, state.is_visible)

    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        is_filling = self._is_filling(observation)
        beliefs = observation.beliefs
        is_wrong = (beliefs.mask_log_prob.exp() > self.threshold) & (beliefs.doubt > 0)
        remask = observation.is_visible & ~is_filling & is_wrong
        gumbel = -torch.log(-torch.log(observation.noise.uniform(remask.shape[1], noise.ORDER)))
        score = beliefs.log_prob.double() + self.sampling.temperature * gumbel
        count = self._reveal_count(observation)
        return remask, highest(score, observation.is_masked & is_filling, count)

    def is_finished(self, state: DecodeState) -> Tensor:
        return self._is_filling(state)[:, 0]  # rows that still hold a MASK continue anyway

    def _is_filling(self, state: DecodeState) -> Tensor:
        """Rows that are in their second phase, bool [B, 1]."""
        has_revealed = (_to_fill(state) & state.is_visible).any(-1)
        is_late = state.step >= min(self.mask_steps, state.max_steps)
        return (has_revealed | (state.idle_steps > 0) | is_late)[:, None]

    def _reveal_count(self, state: DecodeState) -> Tensor:
        """Number of masks that a step of the second phase reveals, [B, 1]."""
        total = _to_fill(state).sum(-1, keepdim=True)
        share = [math.cos(math.pi / 2 * k / self.fill_steps) for k in range(1, self.fill_steps)]
        masked_after = (total * torch.tensor([*share, 0.0], device=total.device)).long()  # [B, K]
        masked_after[:, :-1].clamp_(min=1)
        masked_now = state.is_masked.sum(-1, keepdim=True)
        is_ahead = masked_after < masked_now
        return masked_now - torch.where(is_ahead, masked_after, 0).amax(-1, keepdim=True)


def _to_fill(state: DecodeState) -> Tensor:
    """Cells that were masked at the start or by the first phase, whether filled since or not."""
    was_masked = (state.start == state.mask_id) | (state.times_remasked > 0)
    return state.editable & was_masked
