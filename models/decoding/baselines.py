"""Decoders that RM is compared with, behind the same interface and at equal forward passes.

None of them was published with MASK as a trained target, so MASK is suppressed on reveal for all
(see `beliefs.py`). SPEC §5; the samplers' facts are cited at each.
"""

from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from remask.models import noise
from remask.models.decoding.beliefs import Ranking, Sampling
from remask.models.decoding.policy import Standing, View, block_index, highest

Order = Literal["low_confidence", "random", "entropy", "margin"]
ReMDMKind = Literal["cap", "rescale", "conf", "loop"]


@dataclass(frozen=True, kw_only=True)
class Absorbing:
    """Masks only ever disappear: a fixed number of reveals per step, and what is revealed stays.

    LLaDA's sampler: each block gets an equal share of the steps, and each of its steps an equal
    share of its masks, the first ones taking the remainder.
    """

    order: Order = "low_confidence"
    """Which masks go first: the most probable, any, the lowest entropy, the largest p₁ - p₂."""
    block_length: int | None = None
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise ValueError(f"order must be one of {list(get_args(Order))}, got {self.order!r}")
        if self.block_length is not None and self.block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {self.block_length}")

    @property
    def ranking(self) -> Ranking:
        return self.order if self.order in ("entropy", "margin") else "probability"

    def reads(self, now: Standing) -> Tensor:
        return now.is_masked

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        nothing = torch.zeros_like(view.is_masked)
        score = view.beliefs.confidence
        if self.order == "random":
            score = view.noise.uniform(score.shape[1], noise.ORDER)
        length = self.block_length or view.tokens.shape[1]
        block = block_index(view.editable, length)  # [B, N]
        num_blocks = block.amax(-1, keepdim=True) + 1  # [B, 1]
        if bool((num_blocks > view.max_steps).any()):
            raise ValueError(
                f"{int(num_blocks.max())} blocks of {length} need at least as many steps, got "
                f"max_steps {view.max_steps}"
            )
        now = view.step * num_blocks // view.max_steps  # the block of this step, [B, 1]
        first = -(-now * view.max_steps // num_blocks)
        steps = -(-(now + 1) * view.max_steps // num_blocks) - first
        was_masked = view.editable & (block == now) & (view.start == view.mask_id)
        masks = was_masked.sum(-1, keepdim=True)
        budget = masks // steps + (view.step - first < masks % steps)
        return nothing, highest(score, view.is_masked & (block == now), budget)

    def is_finished(self, now: Standing) -> Tensor:
        return torch.ones_like(now.idle_steps, dtype=torch.bool)  # without masks nothing can happen


@dataclass(frozen=True, kw_only=True)
class ReMDM:
    """Remasking diffusion: each step re-masks any token with a probability σ set by a schedule.

    Time runs from t = 1 to 0 with α_t = 1 - t tokens expected visible. A visible token is re-masked
    with probability σ; a masked one is revealed with (α_s - (1 - σ) α_t) / (1 - α_t).
    """

    kind: ReMDMKind = "cap"
    """`cap`: σ = min(η, σ_max). `rescale`: σ = η σ_max. `conf`: σ_max shared out by softmax of
    -p(token when revealed). `loop`: plain decoding to α_on, a stretch at α_on with σ = η, then the
    rest."""
    eta: float = 0.02
    turn_on: float = 0.55
    """`loop`: time at which re-masking begins."""
    turn_off: float = 0.05
    """`loop`: time at which it ends."""
    alpha_on: float = 0.9
    """`loop`: share of tokens visible meanwhile."""
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0, top_p=0.9))

    ranking: Ranking = field(default="probability", init=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(ReMDMKind):
            raise ValueError(f"kind must be one of {list(get_args(ReMDMKind))}, got {self.kind!r}")
        if not 0 <= self.eta <= 1:
            raise ValueError(f"eta must lie in [0, 1], got {self.eta}")
        if not 0 < self.turn_off < self.turn_on < 1 or not 0 < self.alpha_on < 1:
            raise ValueError(
                "loop needs 0 < turn_off < turn_on < 1 and alpha_on in (0, 1), got "
                f"{self.turn_off}, {self.turn_on}, {self.alpha_on}"
            )

    def reads(self, now: Standing) -> Tensor:
        return now.is_masked

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        left = view.max_steps - view.step
        time, time_next = left / view.max_steps, (left - 1) / view.max_steps
        alpha, alpha_next = self.alpha(time), self.alpha(time_next)
        sigma = self._sigma(view, time, alpha, alpha_next)  # [B, N]
        reveal_rate = (alpha_next - (1 - sigma) * alpha) / (1 - alpha)
        positions = view.tokens.shape[1]
        remask = view.is_visible & (view.noise.uniform(positions, noise.REMASK) < sigma)
        reveal = view.is_masked & (view.noise.uniform(positions, noise.REVEAL) < reveal_rate)
        return remask, reveal

    def is_finished(self, now: Standing) -> Tensor:
        return torch.zeros_like(now.idle_steps, dtype=torch.bool)  # any token may yet be re-masked

    def alpha(self, time: float) -> float:
        """α_t, the share of tokens expected visible."""
        if self.kind != "loop":
            return 1 - time
        if time > self.turn_on:
            return (1 - time) * self.alpha_on / (1 - self.turn_on)
        if time > self.turn_off:
            return self.alpha_on
        return 1 - time * (1 - self.alpha_on) / self.turn_off

    def _sigma(self, view: View, time: float, alpha: float, alpha_next: float) -> Tensor:
        most = 1.0 if alpha == 0 else min(1.0, (1 - alpha_next) / alpha)
        if self.kind == "conf":
            score = -view.revealed_with.double().exp()
            share = score.masked_fill(~view.is_visible, -torch.inf).softmax(-1).nan_to_num(0.0)
            return most * share
        looping = self.kind != "loop" or self.turn_off < time <= self.turn_on
        sigma = self.eta * most if self.kind == "rescale" else min(self.eta, most)
        return torch.full_like(view.revealed_with, sigma * looping, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class P2:
    """Path planning: after step i of S only the best (i+1)/S of the positions stand.

    Every position is scored by the probability of a freshly drawn token; the lowest are masked, and
    the masked ones among the rest take their draw.
    """

    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))

    ranking: Ranking = field(default="probability", init=False)

    def reads(self, now: Standing) -> Tensor:
        return now.editable

    def act(self, view: View) -> tuple[Tensor, Tensor]:
        size = view.editable.sum(-1, keepdim=True)
        num_masked = size * (view.max_steps - 1 - view.step) // view.max_steps  # ⌊(1 - κ) N⌋
        stays = highest(view.beliefs.confidence, view.editable, size - num_masked)
        return view.is_visible & ~stays, view.is_masked & stays

    def is_finished(self, now: Standing) -> Tensor:
        return torch.zeros_like(now.idle_steps, dtype=torch.bool)
