"""Decoders that RM is compared with, behind the same interface and at equal forward passes.

None of them was published with MASK as a trained target, so all of them reveal from V alone, which
excludes MASK (see `beliefs.py`). SPEC §5.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from torch import Tensor

from remask.models import noise
from remask.models.decoding.beliefs import Ranking, Sampling
from remask.models.decoding.policy import DecodeState, Observation, Policy, register_policy
from remask.models.decoding.selection import block_index, highest
from remask.models.ranges import Range, check_fields

Order = Literal["low_confidence", "random", "entropy", "margin"]
ReMDMKind = Literal["cap", "rescale", "conf", "loop"]


@register_policy
@dataclass(frozen=True, kw_only=True)
class Absorbing(Policy):
    """Reveal a fixed number of positions per step; a revealed token never changes.

    This is LLaDA's sampler: the steps are divided evenly among the blocks, and the masks of a block
    evenly among its steps; the first steps take the remainder.
    """

    name = "absorbing"
    may_leave_masks = False

    order: Order = "low_confidence"
    """Which masks are revealed first: the most probable candidates, random ones, those with the
    lowest entropy, or those with the largest p₁ - p₂."""
    block_length: Annotated[int | None, Range("[1, inf)")] = None
    """Editable positions per block. Defaults to one block."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def ranking(self) -> Ranking:
        return self.order if self.order in ("entropy", "margin") else "probability"

    def reads(self, state: DecodeState) -> Tensor:
        return state.is_masked

    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        step, max_steps = observation.step, observation.max_steps
        score = observation.beliefs.confidence
        if self.order == "random":
            score = observation.noise.uniform(score.shape[1], noise.ORDER)
        length = self.block_length or observation.tokens.shape[1]
        block = block_index(observation.editable, length)  # [B, N]
        num_blocks = block.amax(-1, keepdim=True) + 1  # [B, 1]
        if bool((num_blocks > max_steps).any()):
            raise ValueError(
                f"{int(num_blocks.max())} blocks of {length} need at least as many steps, got "
                f"max_steps {max_steps}"
            )
        current = step * num_blocks // max_steps  # the block that this step belongs to, [B, 1]
        first = -(-current * max_steps // num_blocks)
        steps = -(-(current + 1) * max_steps // num_blocks) - first
        is_open = observation.editable & (block == current)
        masks = (is_open & (observation.start == observation.mask_id)).sum(-1, keepdim=True)
        budget = masks // steps + (step - first < masks % steps)
        reveal = highest(score, observation.is_masked & is_open, budget)
        return torch.zeros_like(reveal), reveal

    def is_finished(self, state: DecodeState) -> Tensor:
        # Nothing is re-masked, so a row without masks cannot change.
        return torch.ones_like(state.idle_steps, dtype=torch.bool)


@register_policy
@dataclass(frozen=True, kw_only=True)
class ReMDM(Policy):
    """Remasking diffusion: each step re-masks any token with a scheduled probability σ.

    Time runs from t = 1 to 0, and α_t = 1 - t is the expected share of visible tokens. A visible
    token is re-masked with probability σ; a masked one is revealed with probability
    (α_s - (1 - σ) α_t) / (1 - α_t).
    """

    name = "remdm"
    may_leave_masks = False

    kind: ReMDMKind = "cap"
    """`cap`: σ = min(η, σ_max). `rescale`: σ = η σ_max. `conf`: σ_max divided among the tokens by
    the softmax of -p(token when revealed). `loop`: decode without re-masking up to α_on, stay at
    α_on with σ = η for a while, then decode the rest."""
    eta: Annotated[float, Range("[0, 1]")] = 0.02
    """η, the strength of re-masking."""
    turn_on: Annotated[float, Range("(0, 1)")] = 0.55
    """`loop`: time at which re-masking begins."""
    turn_off: Annotated[float, Range("(0, 1)")] = 0.05
    """`loop`: time at which it ends."""
    alpha_on: Annotated[float, Range("(0, 1)")] = 0.9
    """`loop`: share of tokens visible meanwhile."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0, top_p=0.9))

    def __post_init__(self) -> None:
        check_fields(self)
        if self.turn_off >= self.turn_on:
            raise ValueError(
                f"turn_off must lie below turn_on, got {self.turn_off} and {self.turn_on}; time "
                "runs from 1 to 0"
            )

    def reads(self, state: DecodeState) -> Tensor:
        return state.is_masked

    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        steps_left = observation.max_steps - observation.step
        time, time_next = (x / observation.max_steps for x in (steps_left, steps_left - 1))
        alpha, alpha_next = self.alpha(time), self.alpha(time_next)
        sigma = self._sigma(observation, time, alpha, alpha_next)  # [B, N]
        reveal_rate = (alpha_next - (1 - sigma) * alpha) / (1 - alpha)
        remask_draw, reveal_draw = (
            observation.noise.uniform(observation.tokens.shape[1], stream)
            for stream in (noise.REMASK, noise.REVEAL)
        )
        remask = observation.is_visible & (remask_draw < sigma)
        reveal = observation.is_masked & (reveal_draw < reveal_rate)
        return remask, reveal

    def is_finished(self, state: DecodeState) -> Tensor:
        # Any token may still be re-masked.
        return torch.zeros_like(state.idle_steps, dtype=torch.bool)

    def alpha(self, time: float) -> float:
        """α_t, the expected share of visible tokens."""
        if self.kind != "loop":
            return 1 - time
        if time > self.turn_on:
            return (1 - time) * self.alpha_on / (1 - self.turn_on)
        if time > self.turn_off:
            return self.alpha_on
        return 1 - time * (1 - self.alpha_on) / self.turn_off

    def _sigma(
        self, observation: Observation, time: float, alpha: float, alpha_next: float
    ) -> Tensor:
        """σ of every position, [B, N] float64."""
        sigma_max = 1.0 if alpha == 0 else min(1.0, (1 - alpha_next) / alpha)
        revealed_with = observation.revealed_with
        if self.kind == "conf":
            score = (-revealed_with.double().exp()).masked_fill(~observation.is_visible, -torch.inf)
            return sigma_max * score.softmax(-1).nan_to_num(0.0)
        is_on = self.kind != "loop" or self.turn_off < time <= self.turn_on
        sigma = self.eta * sigma_max if self.kind == "rescale" else min(self.eta, sigma_max)
        return torch.full_like(revealed_with, sigma * is_on, dtype=torch.float64)


@register_policy
@dataclass(frozen=True, kw_only=True)
class P2(Policy):
    """Path planning: after step i of S only the best (i+1)/S of the positions are visible.

    Every position is scored by the probability of a freshly drawn token; the positions with the
    lowest scores are masked, and the masked ones among the others take their draw.
    """

    name = "p2"
    may_leave_masks = False

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))

    def reads(self, state: DecodeState) -> Tensor:
        return state.editable

    def act(self, observation: Observation) -> tuple[Tensor, Tensor]:
        step, max_steps = observation.step, observation.max_steps
        size = observation.editable.sum(-1, keepdim=True)
        num_masked = size * (max_steps - 1 - step) // max_steps  # ⌊(1 - κ) N⌋
        confidence = observation.beliefs.confidence
        is_kept = highest(confidence, observation.editable, size - num_masked)
        return observation.is_visible & ~is_kept, observation.is_masked & is_kept

    def is_finished(self, state: DecodeState) -> Tensor:
        return torch.zeros_like(state.idle_steps, dtype=torch.bool)
