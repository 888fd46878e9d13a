"""Where wrong tokens come from: ν(· | x*) on V∖{x*}. SPEC §3, and the price of each by SPEC §6.

Every proposal draws for many positions at once and tells how far it is from uniform, which bounds
how far it can shift the training objective.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from remask.kernels.rows import uniforms

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

PROBABILITY_FLOOR = 1e-8
"""ε: losses floor probabilities here, so no position costs more than B = -log ε."""


def uniform_draws(rng: np.random.Generator, count: int) -> Floats:
    """Uniform draws from [0, 1), [count]. Only their key comes from `rng`, which is faster."""
    return uniforms(int(rng.integers(2**64, dtype=np.uint64)), count)


class Proposal(Protocol):
    """A law of wrong tokens. Positions are given as (row, position) indices, [P] each."""

    def supports(self, target: Ints) -> Bools:
        """Where a wrong token can be drawn, [B, N]."""
        ...

    def draw(self, target: Ints, row: Ints, position: Ints, rng: np.random.Generator) -> Ints:
        """A wrong token for each position, never its target, [P]."""
        ...

    def distance(self, target: Ints, row: Ints, position: Ints) -> Floats:
        """Total variation to the uniform proposal at each position, [P], in [0, 1]."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Uniform on the allowed ids without the target."""

    ids: Ints
    """Ids that may be proposed, ascending; never MASK."""

    def __post_init__(self) -> None:
        if self.ids.size < 2 or (np.diff(self.ids.astype(np.int64)) <= 0).any():
            raise ValueError(f"ids must be two or more, ascending and distinct; got {self.ids!r}")

    def supports(self, target: Ints) -> Bools:
        return np.ones(target.shape, np.bool_)

    def draw(self, target: Ints, row: Ints, position: Ints, rng: np.random.Generator) -> Ints:
        # Draw one of the others by its rank: from the target on, that is the next id's.
        ids, has_target = _narrow(self.ids, target.dtype), self._has(target)
        others = ids.size - 1 if has_target.all() else ids.size - has_target
        rank = (uniform_draws(rng, target.size) * others).astype(np.int64)
        rank += has_target & (ids[rank] >= target)
        return ids[rank]

    def distance(self, target: Ints, row: Ints, position: Ints) -> Floats:
        return np.zeros(target.size)

    def _has(self, target: Ints) -> Bools:
        """Are the targets among the ids?"""
        low, high = int(self.ids[0]), int(self.ids[-1])
        if high - low + 1 == self.ids.size:  # no gap: a range, as digits are
            return (target >= low) & (target <= high)
        return np.isin(target, self.ids)


def wrong_digit(side: int) -> Uniform:
    """Sudoku: another digit."""
    return Uniform(np.arange(1, side + 1))


@dataclass(frozen=True)
class TopK:
    """A frozen model's k likeliest tokens without the target, renormalised or uniform."""

    candidates: Ints
    """Token ids, [B, N, k]; MASK and special ids already left out."""
    log_probs: Floats
    """Their log-probabilities, [B, N, k]; -inf where there is no candidate."""
    num_allowed: int
    """Ids that may be proposed in all, targets included."""
    is_uniform: bool = False
    """Take every candidate as likely as the others."""

    def __post_init__(self) -> None:
        if self.candidates.ndim != 3 or self.candidates.shape != self.log_probs.shape:
            raise ValueError(
                "candidates and log_probs must share one shape [B, N, k], got "
                f"{list(self.candidates.shape)} and {list(self.log_probs.shape)}"
            )
        if np.isnan(self.log_probs).any():
            place = np.argwhere(np.isnan(self.log_probs))[0].tolist()
            raise ValueError(f"log_probs is NaN at {place}; probe again")
        _check_num_allowed(self.num_allowed)

    def supports(self, target: Ints) -> Bools:
        if self.candidates.shape[:2] != target.shape:
            raise ValueError(
                f"candidates must be [B, N, k] for targets {list(target.shape)}, got "
                f"{list(self.candidates.shape)}"
            )
        usable = np.isfinite(self.log_probs) & (self.candidates != target[..., None])
        return usable.any(-1)

    def draw(self, target: Ints, row: Ints, position: Ints, rng: np.random.Generator) -> Ints:
        probs = self._probabilities(target, row, position)  # [P, k]
        cumulative = probs.cumsum(-1)
        threshold = rng.random((target.size, 1)) * cumulative[:, -1:]
        choice = (cumulative <= threshold).sum(-1)
        # Rounding may carry a draw past the end: the last candidate with any probability takes it.
        last = probs.shape[-1] - 1 - (probs[:, ::-1] > 0).argmax(-1)
        at = (row, position, np.minimum(choice, last))
        return _narrow(self.candidates[at], target.dtype)

    def distance(self, target: Ints, row: Ints, position: Ints) -> Floats:
        # Σ max(0, p - u) over the candidates; all other ids have p = 0 < u.
        uniform = 1 / (self.num_allowed - 1)
        excess = self._probabilities(target, row, position) - uniform
        return np.maximum(excess, 0).sum(-1)

    def _probabilities(self, target: Ints, row: Ints, position: Ints) -> Floats:
        log_probs = self.log_probs[row, position].astype(np.float64)
        log_probs[self.candidates[row, position] == target[:, None]] = -np.inf
        best = log_probs.max(-1, keepdims=True, initial=-np.inf)
        if np.isneginf(best).any():
            first = int(np.argwhere(np.isneginf(best))[0, 0])
            raise ValueError(
                f"no candidate besides the target at row {row[first]}, position {position[first]}; "
                "draw only where supports() holds"
            )
        weights = np.isfinite(log_probs) if self.is_uniform else np.exp(log_probs - best)
        return weights / weights.sum(-1, keepdims=True)


@dataclass(frozen=True)
class SourceTokens:
    """Image edits: the source image's own token where it differs from the target."""

    tokens: Ints
    """The source image's tokens, [B, N]."""
    num_allowed: int
    """Ids that may be proposed in all, targets included."""

    def __post_init__(self) -> None:
        _check_num_allowed(self.num_allowed)

    def supports(self, target: Ints) -> Bools:
        if self.tokens.shape != target.shape:
            raise ValueError(
                f"source and target must share one shape, got {list(self.tokens.shape)} and "
                f"{list(target.shape)}"
            )
        return self.tokens != target

    def draw(self, target: Ints, row: Ints, position: Ints, rng: np.random.Generator) -> Ints:
        return _narrow(self.tokens[row, position], target.dtype)

    def distance(self, target: Ints, row: Ints, position: Ints) -> Floats:
        return np.full(target.size, 1 - 1 / (self.num_allowed - 1))


def objective_shift_bound(
    num_editable: Ints, distance_sum: Floats, *, wrong_rate: float, floor: float = PROBABILITY_FLOOR
) -> float:
    """How far a proposal can move the training objective from the uniform one's: Layer 3.

    |L_uniform - L_practical| <= 2 B |E| π_wrong E[Σ_{i∈E} TV_i], per example and then averaged.

    Args:
        num_editable: |E| of each example, [B].
        distance_sum: Σ over E of the distance to uniform, [B].
        wrong_rate: π_wrong, the expected number of wrong segments of an editable position: of the
            paper's rules, the probability of following `wrong`.
        floor: ε; B = -log ε.
    """
    if num_editable.size == 0:
        return 0.0
    return float(2 * -math.log(floor) * wrong_rate * np.mean(num_editable * distance_sum))


def _narrow(tokens: Ints, dtype: np.dtype) -> Ints:
    """Tokens in the targets' type, if they fit."""
    if tokens.size and int(tokens.max()) > np.iinfo(dtype).max:
        raise ValueError(
            f"proposed id {tokens.max()} does not fit the targets' type {dtype}; widen it"
        )
    return tokens.astype(dtype)


def _check_num_allowed(num_allowed: int) -> None:
    if num_allowed < 2:
        raise ValueError(f"num_allowed must be at least 2, got {num_allowed}")
