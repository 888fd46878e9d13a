"""The revision rule of Reflective Masking. SPEC §1.

At every step and position the model takes one of three actions:

    visible, p(MASK) > p(token)    re-mask
    visible, otherwise             keep
    masked                         reveal argmax over V, which excludes MASK

`RevisionPolicy` is that rule. Its options decide how many positions are revealed or re-masked per
step; with the defaults every masked position is revealed at once, as the rule is printed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from torch import Tensor

from remask.models.decoding.beliefs import Beliefs
from remask.models.decoding.policy import DecodeState, Observation, Policy, register_policy
from remask.models.decoding.selection import block_index, highest, open_block
from remask.models.ranges import Range, check_fields


@register_policy
@dataclass(frozen=True, kw_only=True)
class RevisionPolicy(Policy):
    """Re-mask tokens that are less likely than MASK, keep the others, reveal masked positions."""

    name = "revision"

    reveal_count: Annotated[int | None, Range("[1, inf)")] = None
    """Positions revealed per step, the most confident first. Defaults to all."""
    reveal_threshold: Annotated[float | None, Range("(0, 1]")] = None
    """Reveal positions whose candidate has at least this probability, and always the most confident
    one."""
    reveal_within: Annotated[float | None, Range("(0, 1]")] = None
    """Spread the reveals evenly, the most confident first, over this share of the steps; the
    remaining steps only revise."""
    block_length: Annotated[int | None, Range("[1, inf)")] = None
    """Decode blocks of this many editable positions from left to right; a block opens once those
    before it hold no MASK. Defaults to one block."""
    margin: Annotated[float, Range("(-inf, inf)", "it is a number of nats")] = 0.0
    """Re-mask when log p(MASK) - log p(token) exceeds this many nats. Negative values re-mask more:
    where tokens contradict each other, each of them may be likelier right than wrong."""
    remask_cap: Annotated[int | None, Range("[0, inf)")] = None
    """Maximum number of positions re-masked per step, the most doubted first. Defaults to no
    limit."""
    max_remasks: Annotated[int | None, Range("[0, inf)")] = None
    """Maximum number of times that a position is re-masked; after that it keeps its token. Defaults
    to no limit."""
    abstain: bool = False
    """Leave a masked position masked while MASK is likelier there than any token."""
    patience: Annotated[int, Range("[1, inf)")] = 1
    """Number of steps without an action after which a row is finished."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {"paper": {}, "released": {"reveal_count": 1, "max_remasks": 6, "abstain": True}}
    )
    """`preset: released` decodes as the authors' code for text does, whose default limit is 512
    steps. Unlike theirs, our loop continues while a MASK is left, and reveals MASKs that are left
    at the end."""

    def __post_init__(self) -> None:
        check_fields(self)
        schedules = (self.reveal_count, self.reveal_threshold, self.reveal_within)
        if sum(x is not None for x in schedules) > 1:
            raise ValueError("give one of reveal_count, reveal_threshold and reveal_within")

    def reads(self, state: DecodeState) -> Tensor:
        return state.editable

    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        may_remask, may_reveal = observation.is_visible, observation.is_masked
        if self.block_length is not None:
            block = block_index(observation.editable, self.block_length)
            opened = open_block(block, observation.is_masked)
            may_remask = may_remask & (block <= opened)
            may_reveal = may_reveal & (block == opened)
        if self.max_remasks is not None:
            may_remask = may_remask & (observation.times_remasked < self.max_remasks)
        if self.abstain:
            may_reveal = may_reveal & (observation.beliefs.doubt <= 0)
        return self._remask(observation.beliefs, may_remask), self._reveal(observation, may_reveal)

    def is_finished(self, state: DecodeState) -> Tensor:
        return state.idle_steps >= self.patience

    def reveals_all(self, max_steps: int) -> bool:
        if self.reveal_within is not None:
            return _share_of(max_steps, self.reveal_within) == 1
        return self.reveal_count is None and self.reveal_threshold is None

    def _remask(self, beliefs: Beliefs, eligible: Tensor) -> Tensor:
        remask = eligible & (beliefs.doubt > self.margin)  # a tie keeps
        if self.remask_cap is None:
            return remask
        return highest(beliefs.doubt, remask, self.remask_cap)

    def _reveal(self, observation: Observation, eligible: Tensor) -> Tensor:
        confidence = observation.beliefs.confidence
        if self.reveal_within is not None:
            steps = _share_of(observation.max_steps, self.reveal_within)
            return _reveal_evenly(observation, eligible, steps)
        if self.reveal_count is not None:
            return highest(confidence, eligible, self.reveal_count)
        if self.reveal_threshold is not None:
            is_sure = eligible & (confidence >= math.log(self.reveal_threshold))
            return is_sure | highest(confidence, eligible, 1)
        return eligible


def _share_of(max_steps: int, share: float) -> int:
    return max(1, round(share * max_steps))


def _reveal_evenly(observation: Observation, eligible: Tensor, steps: int) -> Tensor:
    """Reveal enough positions, the most confident first, that rows are full after `steps`."""
    total = observation.editable.sum(-1, keepdim=True)
    due = -(-total * min(observation.step + 1, steps) // steps)
    count = (due - observation.is_visible.sum(-1, keepdim=True)).clamp(min=1)
    return highest(observation.beliefs.confidence, eligible, count)
