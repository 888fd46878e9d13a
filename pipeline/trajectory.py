"""Synthetic revision trajectories: rules, boundaries, states, oracle labels. Reads beside SPEC §3.

A position's path through the T steps of a trajectory is wrong → MASK → target, and four numbers say
it all: (target, wrong, masked_at, revealed_at). Trajectories are drawn for a whole batch of rows at
once and kept in this form; states are expanded only to look at them.

    rule     tokens over time              masked_at β    revealed_at μ
    keep     target                        0              0
    mask     MASK → target                 0              U{1..T}
    wrong    wrong → MASK → target         U{1..T-1}      U{β+1..T}
    doubt    target → MASK → target        as for wrong, with wrong = target
"""

import dataclasses
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from remask.kernels.rows import choose_subsets
from remask.pipeline.proposal import Proposal, chances

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]


class Rule(IntEnum):
    """How a position moves through a trajectory."""

    KEEP = 0
    MASK = 1
    WRONG = 2
    DOUBT = 3


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig:
    """The law that trajectories are drawn from."""

    horizon: int = 6
    """T, steps in a trajectory."""
    noisy_count: tuple[int, int] | None = None
    """Least and most noisy positions in a row, uniform in between; capped at what is editable."""
    noisy_rate: tuple[float, float] | None = None
    """The same as a share of the editable positions. One of the two is needed."""
    wrong_share: float = 0.7
    """Of the noisy positions, the share that starts as a wrong token; the others start as MASK."""
    doubt_share: float = 0.0
    """Of the positions that would start wrong, the share that starts right and is doubted; 0 is the
    paper's."""
    blank_share: float = 0.0
    """Share of the rows in which every editable position starts as MASK, as when a response is
    written from nothing; 0 is the paper's."""
    together_share: float = 0.0
    """Share of the rows in which all that starts visible is masked at one step and revealed at one,
    as the printed rule does to a thing it doubts; 0 is the paper's, each position by itself."""
    see_end: bool = False
    """Look at rows at steps 0 .. T, so that some have nothing left to do; false is the paper's,
    0 .. T-1, true the authors' code for images."""

    def __post_init__(self) -> None:
        if self.horizon < 2:
            raise ValueError(
                f"horizon must be at least 2, to go wrong → MASK → right; got {self.horizon}"
            )
        if (self.noisy_count is None) == (self.noisy_rate is None):
            raise ValueError("give either noisy_count or noisy_rate")
        low, high = self.noisy_count or self.noisy_rate or (0, 0)
        if not 0 <= low <= high or (self.noisy_rate is not None and high > 1):
            raise ValueError(
                f"the noisy range must be 0 <= low <= high (<= 1 if a rate), got {low}, {high}"
            )
        for name in ("wrong_share", "doubt_share", "blank_share", "together_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")


@dataclass(frozen=True)
class Trajectories:
    """A batch of trajectories with the step each is looked at: [B, N] arrays, `step` [B]."""

    target: Ints
    wrong: Ints
    masked_at: Ints
    revealed_at: Ints
    step: Ints
    editable: Bools

    def rules(self) -> Ints:
        """The rule each position follows, [B, N], read back from the encoding."""
        rule = np.where(self.revealed_at > 0, np.uint8(Rule.MASK), np.uint8(Rule.KEEP))
        rule[self.masked_at > 0] = Rule.WRONG
        rule[(self.masked_at > 0) & (self.wrong == self.target)] = Rule.DOUBT
        return rule

    def rule_counts(self) -> dict[Rule, int]:
        """How many editable positions follow each rule, without listing them."""
        return self.noise().rule_counts(self.target, self.editable)

    def noise(self) -> "Noise":
        """The positions that move, by themselves."""
        moves = self.revealed_at > 0
        at = np.flatnonzero(moves)
        masked_at = self.masked_at.ravel()[at]
        visible = at[np.flatnonzero(masked_at > 0)]
        return Noise(
            at=at,
            count=np.count_nonzero(moves, axis=1),
            masked_at=masked_at,
            revealed_at=self.revealed_at.ravel()[at],
            visible=visible,
            wrong=self.wrong.ravel()[visible],
            step=self.step,
        )


@dataclass(frozen=True)
class Noise:
    """What a batch of trajectories adds to its targets: the positions that move, and how."""

    at: Ints
    """Positions that move, as indices into the flattened batch, ascending, [P]."""
    count: Ints
    """How many of them each row has, [B]."""
    masked_at: Ints
    """[P]."""
    revealed_at: Ints
    """[P]."""
    visible: Ints
    """Those of them that start visible, masked_at > 0, [Q]."""
    wrong: Ints
    """What they start as, [Q]."""
    step: Ints
    """[B]."""

    def rule_counts(self, target: Ints, editable: Bools) -> dict[Rule, int]:
        """How many editable positions follow each rule."""
        doubt = int(np.count_nonzero(self.wrong == target.ravel()[self.visible]))
        return {
            Rule.KEEP: int(np.count_nonzero(editable)) - self.at.size,
            Rule.MASK: self.at.size - self.wrong.size,
            Rule.WRONG: self.wrong.size - doubt,
            Rule.DOUBT: doubt,
        }

    def over(self, target: Ints, editable: Bools) -> Trajectories:
        """The trajectories of all positions."""
        wrong = target.copy()
        masked_at, revealed_at = (
            np.zeros(target.shape, x.dtype) for x in (self.masked_at, self.revealed_at)
        )
        wrong.ravel()[self.visible] = self.wrong
        masked_at.ravel()[self.at] = self.masked_at
        revealed_at.ravel()[self.at] = self.revealed_at
        return Trajectories(
            target=target,
            wrong=wrong,
            masked_at=masked_at,
            revealed_at=revealed_at,
            step=self.step,
            editable=editable,
        )


def sample_trajectories(
    target: Ints,
    editable: Bools,
    proposal: Proposal,
    config: TrajectoryConfig,
    rng: np.random.Generator,
) -> Trajectories:
    """Draw one trajectory and one step for every row.

    Args:
        target: Clean tokens x*, [B, N].
        editable: E, bool [B, N].
        proposal: ν, where wrong tokens come from.
        config: Sizes, rates and horizon.
        rng: Source of all randomness.
    """
    return sample_noise(target, editable, proposal, config, rng).over(target, editable)


def sample_noise(
    target: Ints,
    editable: Bools,
    proposal: Proposal,
    config: TrajectoryConfig,
    rng: np.random.Generator,
) -> Noise:
    """The same draw, of which only the positions that move are kept."""
    if target.ndim != 2 or target.dtype.kind not in "iu":
        raise ValueError(f"target must be integers [B, N], got {target.dtype} {list(target.shape)}")
    if editable.shape != target.shape or editable.dtype != np.bool_:
        raise ValueError(
            f"editable must be bool {list(target.shape)} like target, got {editable.dtype} "
            f"{list(editable.shape)}"
        )
    at, count = sample_noisy(editable & proposal.supports(target), editable, config, rng)
    rule = sample_rules(at.size, config, rng)
    masked_at, revealed_at = sample_boundaries(rule, config.horizon, rng)
    if config.together_share > 0:
        masked_at, revealed_at = bring_together(rule, count, (masked_at, revealed_at), config, rng)
    step = rng.integers(0, config.horizon + config.see_end, len(target), dtype=masked_at.dtype)

    starts_visible = np.flatnonzero(rule != Rule.MASK)
    visible = at[starts_visible]
    wrong = target.ravel()[visible]  # a doubted token is the target
    drawn = slice(None)
    if config.doubt_share > 0:
        drawn = np.flatnonzero(rule[starts_visible] == Rule.WRONG)
    row, position = np.divmod(visible[drawn], target.shape[1])
    wrong[drawn] = proposal.draw(wrong[drawn], row, position, rng)
    return Noise(at, count, masked_at, revealed_at, visible, wrong, step)


def blank_rows(
    drawn: Trajectories, config: TrajectoryConfig, rng: np.random.Generator
) -> Trajectories:
    """The same with `blank_share` of the rows drawn anew: all of E follows the mask rule."""
    if config.blank_share == 0:
        return drawn
    is_blank = rng.random(len(drawn.target)) < config.blank_share
    where = is_blank[:, None] & drawn.editable
    rule = np.full(np.count_nonzero(where), np.uint8(Rule.MASK))
    masked_at, revealed_at = sample_boundaries(rule, config.horizon, rng)
    drawn = dataclasses.replace(
        drawn, **{x: getattr(drawn, x).copy() for x in ("wrong", "masked_at", "revealed_at")}
    )
    drawn.wrong[where] = drawn.target[where]
    drawn.masked_at[where], drawn.revealed_at[where] = masked_at, revealed_at
    return drawn


def sample_noisy(
    candidates: Bools, editable: Bools, config: TrajectoryConfig, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Choose the noisy subset of each row: first its size, then its members, all alike likely.

    Args:
        candidates: Positions that may be noisy, bool [B, N].
        editable: E, which a rate is a share of, bool [B, N].
        config: Says the size.
        rng: Source of randomness.

    Returns:
        The noisy positions as indices into the flattened batch, ascending, [P], and how many of
        them each row has, [B].
    """
    num_rows = len(candidates)
    if config.noisy_count is not None:
        low, high = config.noisy_count
        size = rng.integers(low, high + 1, num_rows)
    else:
        low, high = config.noisy_rate or (0.0, 0.0)
        size = np.rint(rng.uniform(low, high, num_rows) * count_true(editable)).astype(np.int64)
    count = count_true(candidates)
    size = np.minimum(size, count)
    chosen = choose_subsets(count, size, chances(rng, int(size.sum())))
    return chosen if candidates.all() else np.flatnonzero(candidates)[chosen], size


def count_true(mask: Bools) -> Ints:
    """How many positions of each row are true, [B]; a full mask, the common case, is not summed."""
    return np.full(len(mask), mask.shape[1]) if mask.all() else mask.sum(1)


def sample_rules(count: int, config: TrajectoryConfig, rng: np.random.Generator) -> Ints:
    """A rule for each of `count` noisy positions."""
    starts_visible = chances(rng, count) < config.wrong_share
    rule = np.uint8(Rule.MASK) + starts_visible  # WRONG comes after MASK
    if config.doubt_share > 0:
        rule[starts_visible & (chances(rng, count) < config.doubt_share)] = Rule.DOUBT
    return rule


def sample_boundaries(rule: Ints, horizon: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """β and μ for positions of rule mask, wrong or doubt, in the narrowest type that holds T."""
    narrow = np.min_scalar_type(horizon)
    starts_visible = rule != Rule.MASK
    # ⌊u·n⌋ is U{0..n-1} for u in [0, 1): it never rounds up to n.
    masked_at = 1 + (chances(rng, rule.size) * (horizon - 1)).astype(narrow)  # U{1..T-1}
    masked_at *= starts_visible
    left = horizon - masked_at
    revealed_at = masked_at + 1 + (chances(rng, rule.size) * left).astype(narrow)  # U{β+1..T}
    return masked_at, revealed_at


def bring_together(
    rule: Ints,
    count: Ints,
    boundaries: tuple[Ints, Ints],
    config: TrajectoryConfig,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """β and μ, of which a row's visible starts share one each in `together_share` of the rows.

    Args:
        rule: Of each noisy position, [P].
        count: How many of them each row has, [B].
        boundaries: β and μ as drawn for each by itself, [P] each.
        config: Says the share.
        rng: Source of randomness.
    """
    is_together = rng.random(count.size) < config.together_share
    shared = sample_boundaries(np.full(count.size, np.uint8(Rule.WRONG)), config.horizon, rng)
    where = np.repeat(is_together, count) & (rule != Rule.MASK)
    masked_at, revealed_at = (
        np.where(where, np.repeat(one, count), own)
        for one, own in zip(shared, boundaries, strict=True)
    )
    return masked_at, revealed_at


def state_at(trajectories: Trajectories, step: Ints | int, mask_id: int) -> Ints:
    """Tokens at a step, [B, N]: one step for all rows, or [B] of them."""
    _check_fits(mask_id, trajectories.target)
    step = np.asarray(step).reshape(-1, 1)
    shown = np.where(step < trajectories.revealed_at, mask_id, trajectories.target)
    shown = np.where(step < trajectories.masked_at, trajectories.wrong, shown)
    return shown.astype(trajectories.target.dtype)


def oracle_action(state: Ints, target: Ints, mask_id: int) -> Ints:
    """τ, the token to prefer: MASK where a visible token is wrong, else the target. SPEC §4."""
    _check_fits(mask_id, target)
    return np.where((state != mask_id) & (state != target), mask_id, target).astype(target.dtype)


def check_trajectories(
    trajectories: Trajectories, *, horizon: int, vocab_size: int, mask_id: int
) -> None:
    """Raise ValueError at the first row that no trajectory law gives, naming place and value."""
    t = trajectories
    grid = {"wrong": t.wrong, "masked_at": t.masked_at, "revealed_at": t.revealed_at}
    for name, array in (*grid.items(), ("editable", t.editable)):
        if array.shape != t.target.shape:
            raise ValueError(
                f"{name} must be {list(t.target.shape)} like target, got {list(array.shape)}"
            )
    if t.step.shape != t.target.shape[:1]:
        raise ValueError(f"step must be [{t.target.shape[0]}], got {list(t.step.shape)}")
    moves = (t.masked_at > 0) | (t.revealed_at > 0)
    rules = (
        (
            "target must be an id below the vocabulary's size",
            t.target,
            _outside(t.target, vocab_size),
        ),
        ("wrong must be an id below the vocabulary's size", t.wrong, _outside(t.wrong, vocab_size)),
        (f"target must not be MASK ({mask_id})", t.target, t.target == mask_id),
        (f"wrong must not be MASK ({mask_id})", t.wrong, t.wrong == mask_id),
        ("masked_at must be 0 or more", t.masked_at, t.masked_at < 0),
        ("masked_at must not exceed revealed_at", t.masked_at, t.masked_at > t.revealed_at),
        (
            "a token masked at a step must be revealed at a later one",
            t.revealed_at,
            (t.masked_at > 0) & (t.masked_at == t.revealed_at),
        ),
        (f"revealed_at must not exceed horizon {horizon}", t.revealed_at, t.revealed_at > horizon),
        ("only editable positions may move", t.revealed_at, moves & ~t.editable),
        (
            "wrong must equal target unless it is shown",
            t.wrong,
            (t.masked_at == 0) & (t.wrong != t.target),
        ),
        (f"step must lie in 0 .. {horizon}", t.step, (t.step < 0) | (t.step > horizon)),
    )
    for message, values, bad in rules:
        if bad.any():
            place = np.argwhere(bad)[0]
            raise ValueError(f"{message}, got {values[tuple(place)]} at {place.tolist()}")


def _check_fits(mask_id: int, target: Ints) -> None:
    if not np.iinfo(target.dtype).min <= mask_id <= np.iinfo(target.dtype).max:
        raise ValueError(
            f"mask_id {mask_id} does not fit the tokens' type {target.dtype}; widen it"
        )


def _outside(ids: Ints, vocab_size: int) -> Bools:
    return (ids < 0) | (ids >= vocab_size)
