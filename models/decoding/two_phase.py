"""The authors' released image decoder: first choose what to edit, then fill it in.

It differs from the paper's rule, which is `RevisionPolicy`; both are offered so that they can be
compared. The authors guide the second phase alone, by text: `Guidance(text=4.0, at="masked")`.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from remask.models import noise
from remask.models.decoding.beliefs import Ranking, Sampling
from remask.models.decoding.policy import Standing, View, highest


@dataclass(frozen=True, kw_only=True)
class TwoPhase:
    """Re-mask what is surely wrong until nothing more is; then reveal by MaskGIT's schedule.

    With n cells to fill, n · cos(π/2 · k/K) of them are masked after k of K steps, at least one
    until the last. Steps that would reveal nothing are left out. A row goes to its second phase by
    itself, after a step that re-masked nothing or after `mask_steps`.
    """

    mask_steps: int = 8
    """Steps of the first phase at most."""
    fill_steps: int = 8
    """K, steps of the second phase at most."""
    threshold: float = 0.9
    """A cell is re-masked if p(MASK) is above this, and above p(token)."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    """How codes are drawn; its temperature also scales the noise in the order of reveals."""

    ranking: Ranking = field(default="probability", init=False)

    def __post_init__(self) -> None:
        if self.mask_steps < 1 or self.fill_steps < 1:
            raise ValueError(
                "mask_steps and fill_steps must be at least 1, got "
                f"{self.mask_steps}, {self.fill_steps}"
            )
        if not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must lie in [0, 1), got {self.threshold}")

    def reads(self, now: Standing) -> Tensor:
        return torch.where(self._is_filling(now), now.is_masked, now.is_visible)

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        is_filling = self._is_filling(view)
        beliefs = view.beliefs
        is_wrong = (beliefs.mask_log_prob.exp() > self.threshold) & (beliefs.doubt > 0)
        remask = view.is_visible & ~is_filling & is_wrong
        chance = -torch.log(-torch.log(view.noise.uniform(remask.shape[1], noise.ORDER)))
        score = beliefs.log_prob.double() + self.sampling.temperature * chance
        reveal = highest(score, view.is_masked & is_filling, self._num_revealed(view))
        return remask, reveal

    def is_finished(self, now: Standing) -> Tensor:
        return self._is_filling(now)[:, 0]  # and nothing left to fill

    def _is_filling(self, now: Standing) -> Tensor:
        """Which rows are in their second phase, bool [B, 1]."""
        has_revealed = (_to_fill(now) & now.is_visible).any(-1)
        is_late = now.step >= min(self.mask_steps, now.max_steps)
        return (has_revealed | (now.idle_steps > 0) | is_late)[:, None]

    def _num_revealed(self, view: View) -> Tensor:
        """How many masks go in a step of the second phase, [B, 1]."""
        total = _to_fill(view).sum(-1, keepdim=True)
        share = [math.cos(math.pi / 2 * k / self.fill_steps) for k in range(1, self.fill_steps)]
        left = (total * torch.tensor([*share, 0.0], device=total.device)).long()  # [B, K]
        left[:, :-1].clamp_(min=1)
        now = view.is_masked.sum(-1, keepdim=True)
        return now - torch.where(left < now, left, 0).amax(-1, keepdim=True)


def _to_fill(now: Standing) -> Tensor:
    """Cells that were masked at the start or by the first phase, filled since or not."""
    return now.editable & ((now.start == now.mask_id) | (now.times_remasked > 0))
