"""Synthetic revision trajectories: the law they are drawn from. Reads beside SPEC §3.

Every noisy position follows a rule, a path such as wrong → MASK → target, whose segments end at
steps drawn by one law. A trajectory is kept as these segments (`remask.kernels.Segments`), never as
states. All rows of a batch are drawn at once.

    rule       shows                              ends
    mask       MASK, target                       U{1..T}
    wrong      wrong, MASK, target                U{1..T-1}, U{β+1..T}
    doubt      target, MASK, target               as for wrong
    relapse    MASK, wrong, MASK, target          U{1..T-2}, U{e₀+1..T-1}, U{e₁+1..T}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from remask.kernels import Segments
from remask.kernels.rows import choose_subsets
from remask.models.ranges import Range, check_fields
from remask.pipeline.moves import Moves
from remask.pipeline.proposal import Proposal, uniform_draws
from remask.pipeline.rules import RULES, Show, num_segments, path_table

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]
Share = Annotated[float, Range("[0, 1]")]

PAPER_RULES: Mapping[str, float] = {"wrong": 0.7, "mask": 0.3}


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig:
    """The law that trajectories are drawn from."""

    horizon: int = 6
    """T, the number of steps in a trajectory."""
    noisy_count: tuple[int, int] | None = None
    """Range of the number of noisy positions in a row, which is drawn uniformly and capped at the
    number of editable ones."""
    noisy_rate: tuple[float, float] | None = None
    """The same as a share of the editable positions. Exactly one of the two must be given."""
    rules: dict[str, float] = field(default_factory=lambda: dict(PAPER_RULES))
    """Share of the noisy positions that follows each rule; the shares sum to 1."""
    doubt_share: Share = 0.0
    """Share of the positions of rule `wrong` that follow `doubt` instead; 0 is the paper's."""
    blank_share: Share = 0.0
    """Share of the rows in which every editable position follows `mask`, as when a response is
    written from nothing; 0 is the paper's."""
    together_share: Share = 0.0
    """Share of the rows in which positions that start visible change at the same steps, as the
    printed rule makes them; 0 is the paper's, each position by itself."""
    see_end: bool = False
    """Look at rows at steps 0 .. T, so that some have nothing left to do; false is the paper's,
    0 .. T-1, true the authors' code for images."""

    def __post_init__(self) -> None:
        check_fields(self)
        unknown = sorted(set(self.rules) - set(RULES))
        if unknown or not self.rules:
            raise ValueError(f"rules must be among {list(RULES)}, got {unknown or 'none'}")
        shares = list(self.rules.values())
        if min(shares) < 0 or not abs(sum(shares) - 1) < 1e-6:
            raise ValueError(f"the shares of rules must be 0 or more and sum to 1, got {shares}")
        if self.horizon < num_segments(self.used_rules) - 1:
            longest = max(self.used_rules, key=lambda name: len(RULES[name]))
            raise ValueError(
                f"horizon must be at least {len(RULES[longest]) - 1} for rule {longest} "
                f"({' → '.join(show.name.lower() for show in RULES[longest])}), got {self.horizon}"
            )
        if (self.noisy_count is None) == (self.noisy_rate is None):
            raise ValueError("give either noisy_count or noisy_rate")
        low, high = self.noisy_count or self.noisy_rate or (0, 0)
        if not 0 <= low <= high or (self.noisy_rate is not None and high > 1):
            raise ValueError(
                f"the noisy range must be 0 <= low <= high (<= 1 if a rate), got {low}, {high}"
            )

    @property
    def used_rules(self) -> tuple[str, ...]:
        """The rules that positions can follow, in the order of `RULES`."""
        used = {name for name, share in self.rules.items() if share > 0}
        used |= {"doubt"} if self.doubt_share > 0 and "wrong" in used else set()
        used |= {"mask"} if self.blank_share > 0 else set()
        return tuple(name for name in RULES if name in used)


def sample_trajectories(
    target: Ints,
    editable: Bools,
    proposal: Proposal,
    config: TrajectoryConfig,
    rng: np.random.Generator,
    *,
    mask_id: int,
) -> Segments[Ints]:
    """Draw one trajectory and one step for every row.

    Args:
        target: Clean tokens x*, [B, N].
        editable: E, bool [B, N].
        proposal: ν, where wrong tokens come from.
        config: Sizes, shares and horizon.
        rng: Source of all randomness.
        mask_id: Id of the mask token.
    """
    return sample_moves(target, editable, proposal, config, rng, mask_id=mask_id).over(target)


def sample_moves(
    target: Ints,
    editable: Bools,
    proposal: Proposal,
    config: TrajectoryConfig,
    rng: np.random.Generator,
    *,
    mask_id: int,
) -> Moves:
    """The same draw, with only the positions that move."""
    _check_inputs(target, editable, mask_id)
    rules = config.used_rules
    at, count = sample_noisy(editable & proposal.supports(target), editable, config, rng)
    rule = sample_rules(at.size, config, rng)
    if config.blank_share > 0:
        at, count, rule = _blank_rows(at, count, rule, editable, config, rng)
    ends = sample_ends(rule, rules, config.horizon, rng)
    if config.together_share > 0:
        _bring_together(ends, rule, count, config, rng)
    step = rng.integers(0, config.horizon + config.see_end, len(target), dtype=ends.dtype)

    table = path_table(rules)  # [rules, S-1]
    tokens = np.empty((table.shape[1], at.size), target.dtype)
    right = target.ravel()[at]
    for plane, shows in zip(tokens, table.T, strict=True):
        is_masked = shows == Show.MASK
        plane[:] = mask_id if is_masked.all() else right
        if is_masked.any() and not is_masked.all():
            plane[is_masked[rule]] = mask_id
        is_wrong = shows == Show.WRONG
        if is_wrong.any():
            chosen = slice(None) if is_wrong.all() else np.flatnonzero(is_wrong[rule])
            row, position = np.divmod(at[chosen], target.shape[1])
            plane[chosen] = proposal.draw(plane[chosen], row, position, rng)
    return Moves(at, count, tokens, ends, step)


def sample_noisy(
    candidates: Bools, editable: Bools, config: TrajectoryConfig, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Choose the noisy subset of each row: its size first, then a uniform subset of that size.

    Args:
        candidates: Positions that may be noisy, bool [B, N].
        editable: E, of which a rate is a share, bool [B, N].
        config: Gives the range of the size.
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
    chosen = choose_subsets(count, size, uniform_draws(rng, int(size.sum())))
    return chosen if candidates.all() else np.flatnonzero(candidates)[chosen], size


def count_true(mask: Bools) -> Ints:
    """How many positions of each row are true, [B]; a full mask, the common case, is not summed."""
    return np.full(len(mask), mask.shape[1]) if mask.all() else mask.sum(1)


def sample_rules(count: int, config: TrajectoryConfig, rng: np.random.Generator) -> Ints:
    """A rule for each of `count` noisy positions, as an index into `config.used_rules`, [count]."""
    used = config.used_rules
    drawn = [name for name in used if config.rules.get(name, 0) > 0]
    limits = np.cumsum([config.rules[name] for name in drawn])[:-1]
    draws = uniform_draws(rng, count)
    rule = np.zeros(count, np.uint8)
    for limit in limits:
        rule += draws >= limit
    if drawn != list(used):
        rule = np.array([used.index(name) for name in drawn], np.uint8)[rule]
    if "doubt" in used and config.doubt_share > 0:
        is_wrong = rule == used.index("wrong")
        rule[is_wrong & (uniform_draws(rng, count) < config.doubt_share)] = used.index("doubt")
    return rule


def sample_ends(rule: Ints, rules: tuple[str, ...], horizon: int, rng: np.random.Generator) -> Ints:
    """The steps at which segments end, right-aligned, in the narrowest type for T: [S-1, P].

    The first end of a path of L segments is uniform on 1 .. T-L+2, each next one on the steps from
    the previous end's successor to the latest that leaves a step for each end to come.

    Args:
        rule: Index into `rules` of each position, [P].
        rules: Names of rules.
        horizon: T.
        rng: Source of randomness.
    """
    narrow = np.min_scalar_type(horizon)
    table = path_table(rules)
    ends = np.empty((table.shape[1], rule.size), narrow)
    previous = np.zeros(rule.size, narrow)
    for i, shows in enumerate(table.T):
        latest = horizon - (len(ends) - 1 - i)
        # ⌊u·n⌋ is U{0..n-1} for u in [0, 1): it never rounds up to n.
        offset = (uniform_draws(rng, rule.size) * (latest - previous)).astype(narrow)
        np.add(previous, offset, out=ends[i])
        ends[i] += 1
        if not shows.all():
            ends[i] *= (shows != Show.NOTHING)[rule]
        previous = ends[i]
    return ends


def oracle_action(state: Ints, target: Ints, mask_id: int) -> Ints:
    """τ, the token to prefer: MASK where a visible token is wrong, else the target. SPEC §4."""
    _check_fits(mask_id, target)
    return np.where((state != mask_id) & (state != target), mask_id, target).astype(target.dtype)


def _blank_rows(
    at: Ints,
    count: Ints,
    rule: Ints,
    editable: Bools,
    config: TrajectoryConfig,
    rng: np.random.Generator,
) -> tuple[Ints, Ints, Ints]:
    """Noisy positions, their number per row and their rules, with `blank_share` of the rows blank:
    all of E follows `mask` there."""
    is_blank = rng.random(len(editable)) < config.blank_share
    kept = ~np.repeat(is_blank, count)
    blank = np.flatnonzero(editable & is_blank[:, None])
    places = np.concatenate([at[kept], blank])
    mask_rule = np.full(blank.size, config.used_rules.index("mask"), np.uint8)
    order = np.argsort(places, kind="stable")
    count = np.where(is_blank, count_true(editable), count)
    return places[order], count, np.concatenate([rule[kept], mask_rule])[order]


def _bring_together(
    ends: Ints, rule: Ints, count: Ints, config: TrajectoryConfig, rng: np.random.Generator
) -> None:
    """In `together_share` of the rows, give positions that start visible and have equally long
    paths the same ends. Changes `ends`, [S-1, P]; the others are as for `sample_ends`."""
    is_together = np.repeat(rng.random(count.size) < config.together_share, count)
    rules = config.used_rules
    visible = [name for name in rules if RULES[name][0] != Show.MASK]
    for length in sorted({len(RULES[name]) for name in visible}):
        alike = [rules.index(name) for name in visible if len(RULES[name]) == length]
        shared = sample_ends(np.full(count.size, alike[0], np.uint8), rules, config.horizon, rng)
        where = is_together & np.isin(rule, alike)
        ends[:, where] = np.repeat(shared, count, axis=1)[:, where]


def _check_inputs(target: Ints, editable: Bools, mask_id: int) -> None:
    if target.ndim != 2 or target.dtype.kind not in "iu":
        raise ValueError(f"target must be integers [B, N], got {target.dtype} {list(target.shape)}")
    if editable.shape != target.shape or editable.dtype != np.bool_:
        raise ValueError(
            f"editable must be bool {list(target.shape)} like target, got {editable.dtype} "
            f"{list(editable.shape)}"
        )
    _check_fits(mask_id, target)


def _check_fits(mask_id: int, target: Ints) -> None:
    if not np.iinfo(target.dtype).min <= mask_id <= np.iinfo(target.dtype).max:
        raise ValueError(
            f"mask_id {mask_id} does not fit the tokens' type {target.dtype}; widen it"
        )
