"""What a decoding policy sees and answers, and the revision rule itself. Reads beside SPEC §1.

At every step and position the model keeps, re-masks or reveals. `RevisionPolicy` is that rule with
its options; the baselines are in `baselines.py`, and `loop.py` runs them all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from remask.models.decoding.beliefs import Beliefs, Ranking, Sampling
from remask.models.noise import Noise


@dataclass(frozen=True)
class Standing:
    """Where a decode stands before the model is asked; tensors are [B, N] unless noted."""

    tokens: Tensor
    start: Tensor
    """The state that decoding began with."""
    editable: Tensor
    is_masked: Tensor
    """Editable and now MASK."""
    is_visible: Tensor
    """Editable and now a token."""
    idle_steps: Tensor
    """Steps without an action up to now, [B]."""
    revealed_with: Tensor
    """log p of each token when it was revealed; 0 for those given at the start."""
    times_remasked: Tensor
    """How often each position was re-masked before."""
    step: int
    max_steps: int
    mask_id: int
    noise: Noise


@dataclass(frozen=True)
class View(Standing):
    """All that a policy may look at when it decides on a step."""

    beliefs: Beliefs


class Policy(Protocol):
    """How beliefs become actions. A frozen dataclass: whatever varies is in the view."""

    @property
    def sampling(self) -> Sampling: ...

    @property
    def ranking(self) -> Ranking: ...

    def reads(self, now: Standing) -> Tensor:
        """Where beliefs are needed for the step, bool [B, N]."""
        ...

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        """What to re-mask among the visible and what to reveal among the masked, bool [B, N]."""
        ...

    def is_finished(self, now: Standing) -> Tensor:
        """Which rows need no further step, bool [B]. Rows that still hold a MASK go on whatever the
        answer."""
        ...


@dataclass(frozen=True, kw_only=True)
class RevisionPolicy:
    """Reflective Masking: re-mask what MASK is likelier than, keep the rest, reveal the masked."""

    reveal_count: int | None = None
    """Reveal this many per step, the most confident first; all when none."""
    reveal_threshold: float | None = None
    """Reveal those at least this probable, and always the most confident one."""
    reveal_within: float | None = None
    """Reveal as many per step, the most confident first, as keep a row on course to be full after
    this share of the steps; what is left of them is for revision."""
    draft_share: float | None = None
    """Write a draft in this share of the steps, the most confident first, without a second look;
    then revise it. The past starts anew with the draft: a model is trained on wrong tokens that
    stand from the start, so one that sees its past trusts whatever it saw revealed."""
    block_length: int | None = None
    """Open blocks of this many editable positions from left to right, each when those before it
    hold no MASK; one block when none."""
    margin: float = 0.0
    """Re-mask when log p(MASK) exceeds log p(token) by more than this many nats. Below 0 is eager:
    where tokens contradict each other, each of them is likelier right than wrong."""
    remask_cap: int | None = None
    """Re-mask at most this many per step, the most doubted first."""
    max_remasks: int | None = None
    """Re-mask a position at most this many times; then it keeps what it has."""
    abstain: bool = False
    """Leave a masked position masked while MASK is likelier there than any token."""
    patience: int = 1
    """End a row after this many steps without action."""
    sampling: Sampling = field(default_factory=Sampling)

    ranking: Ranking = field(default="probability", init=False)

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {"paper": {}, "released": {"reveal_count": 1, "max_remasks": 6, "abstain": True}}
    )
    """`preset: released` is as the authors' code for text decodes, at most 512 steps by default.
    Unlike theirs, ours goes on while a MASK is left and reveals what is left at the end."""

    def __post_init__(self) -> None:
        ways = (self.reveal_count, self.reveal_threshold, self.reveal_within)
        if sum(x is not None for x in ways) > 1:
            raise ValueError("give one of reveal_count, reveal_threshold and reveal_within")
        if self.reveal_within is not None and not 0 < self.reveal_within <= 1:
            raise ValueError(f"reveal_within must lie in (0, 1], got {self.reveal_within}")
        if self.draft_share is not None and not 0 < self.draft_share < 1:
            raise ValueError(f"draft_share must lie between 0 and 1, got {self.draft_share}")
        if self.reveal_threshold is not None and not 0 < self.reveal_threshold <= 1:
            raise ValueError(f"reveal_threshold must lie in (0, 1], got {self.reveal_threshold}")
        if not math.isfinite(self.margin):
            raise ValueError(f"margin must be a number of nats, got {self.margin}")
        least_values = {"reveal_count": 1, "block_length": 1, "remask_cap": 0, "max_remasks": 0}
        for name, least in least_values.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1 step, got {self.patience}")

    def reads(self, now: Standing) -> Tensor:
        return now.editable

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        may_remask, may_reveal = view.is_visible, view.is_masked
        draft_steps = self.draft_steps(view.max_steps)
        if view.step < draft_steps:
            return torch.zeros_like(may_remask), self._on_course(view, may_reveal, draft_steps)
        if self.block_length is not None:
            block = block_index(view.editable, self.block_length)
            opened = open_block(block, view.is_masked)
            may_remask = may_remask & (block <= opened)
            may_reveal = may_reveal & (block == opened)
        if self.max_remasks is not None:
            may_remask = may_remask & (view.times_remasked < self.max_remasks)
        if self.abstain:
            may_reveal = may_reveal & (view.beliefs.doubt <= 0)
        return self._remask(view.beliefs, may_remask), self._reveal(view, may_reveal)

    def is_finished(self, now: Standing) -> Tensor:
        is_drafting = now.step <= self.draft_steps(now.max_steps) != 0
        return (now.idle_steps >= self.patience) & (not is_drafting)

    def draft_steps(self, max_steps: int) -> int:
        """How many steps write the draft."""
        if self.draft_share is None:
            return 0
        return min(self._course_steps(self.draft_share, max_steps), max_steps - 1)

    def _remask(self, beliefs: Beliefs, eligible: Tensor) -> Tensor:
        remask = eligible & (beliefs.doubt > self.margin)  # a tie keeps
        if self.remask_cap is None:
            return remask
        return highest(beliefs.doubt, remask, self.remask_cap)

    def reveals_all(self, max_steps: int) -> bool:
        """Is every masked position revealed in the first step, as the rule is printed?"""
        if self.draft_share is not None:
            return self.draft_steps(max_steps) == 1
        if self.reveal_within is not None:
            return self._course_steps(self.reveal_within, max_steps) == 1
        return self.reveal_count is None and self.reveal_threshold is None

    def _reveal(self, view: View, eligible: Tensor) -> Tensor:
        beliefs = view.beliefs
        if self.reveal_within is not None:
            steps = self._course_steps(self.reveal_within, view.max_steps)
            return self._on_course(view, eligible, steps)
        if self.reveal_count is not None:
            return highest(beliefs.confidence, eligible, self.reveal_count)
        if self.reveal_threshold is not None:
            sure = eligible & (beliefs.confidence >= math.log(self.reveal_threshold))
            return sure | highest(beliefs.confidence, eligible, 1)
        return eligible

    @staticmethod
    def _course_steps(share: float, max_steps: int) -> int:
        return max(1, round(share * max_steps))

    def _on_course(self, view: View, eligible: Tensor, steps: int) -> Tensor:
        """As many, the most confident first, as keep a row on course to be full after `steps`."""
        total = view.editable.sum(-1, keepdim=True)
        due = -(-total * min(view.step + 1, steps) // steps)
        count = (due - view.is_visible.sum(-1, keepdim=True)).clamp(min=1)
        return highest(view.beliefs.confidence, eligible, count)


def block_index(editable: Tensor, length: int) -> Tensor:
    """Which block each editable position is in, counting from the left, [B, N]."""
    return (editable.cumsum(-1) - 1).clamp(min=0) // length


def open_block(block: Tensor, is_masked: Tensor) -> Tensor:
    """The first block that holds a MASK, [B, 1]; the last block where there is none."""
    return torch.where(is_masked, block, block.amax(-1, keepdim=True)).amin(-1, keepdim=True)


def highest(score: Tensor, eligible: Tensor, count: Tensor | int) -> Tensor:
    """The `count` eligible positions of highest score in each row, bool [B, N]; ties go left.

    Args:
        score: [B, N].
        eligible: Bool [B, N].
        count: One number, or [B, 1].
    """
    ranked = score.masked_fill(~eligible, -math.inf)
    # Eligible first, so that an eligible -inf still comes before what may not be chosen.
    order = torch.argsort(ranked, dim=-1, descending=True, stable=True)
    order = order.gather(-1, torch.argsort((~eligible).gather(-1, order), dim=-1, stable=True))
    rank = torch.empty_like(order)
    rank.scatter_(-1, order, torch.arange(score.shape[-1], device=score.device).expand_as(order))
    return eligible & (rank < count)
