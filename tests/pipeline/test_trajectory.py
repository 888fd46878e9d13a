"""Trajectories: the law they are drawn from, their rules, their states and labels."""

import dataclasses
import itertools
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask import training
from remask.pipeline import (
    RULES,
    SourceTokens,
    TrajectoryConfig,
    Uniform,
    oracle_action,
    sample_trajectories,
    wrong_digit,
)
from remask.pipeline.moves import Moves
from remask.pipeline.rules import KEEP, RECORDED, Show, count_rules
from remask.pipeline.trajectory import sample_ends, sample_noisy

MASK, VOCAB = 0, 10
COUNT = TrajectoryConfig(noisy_count=(3, 7), doubt_share=0.3)
ALL_RULES = {"wrong": 0.3, "mask": 0.2, "relapse": 0.2, "relapse2": 0.2, "doubt": 0.1}


def draw(num_rows=50, num_positions=12, config=COUNT, seed=0, editable=None, dtype=np.uint8):
    rng = np.random.default_rng(seed)
    target = rng.integers(1, VOCAB, (num_rows, num_positions)).astype(dtype)
    if editable is None:
        editable = np.ones(target.shape, np.bool_)
    return sample_trajectories(target, editable, wrong_digit(9), config, rng, mask_id=MASK)


def path_of(segments, b, n):
    """What a position shows over time, runs of equal tokens as one, and where each run ends."""
    tokens, ends, start = [], [], 0
    for token, end in zip(segments.tokens[:, b, n], [*segments.ends[:, b, n], np.inf], strict=True):
        if end > start:
            tokens.append(int(token))
            ends.append(end)
            start = end
    return tokens, [int(end) for end in ends[:-1]]


def rules_of(segments):
    """The rule each position follows, [B, N] of names, read from its path one by one."""
    names = {path: name for name, path in RULES.items()} | {(Show.TARGET,): KEEP}
    grid = np.empty(segments.target.shape, object)
    for b, n in np.ndindex(*grid.shape):
        target = int(segments.target[b, n])
        shows = {MASK: Show.MASK, target: Show.TARGET}
        path = tuple(shows.get(token, Show.WRONG) for token in path_of(segments, b, n)[0])
        grid[b, n] = names.get(path, RECORDED)
    return grid


@st.composite
def laws(draw):
    low, high = sorted((draw(st.integers(0, 15)), draw(st.integers(0, 15))))
    size = (
        {"noisy_count": (low, high)}
        if draw(st.booleans())
        else {"noisy_rate": (low / 15, high / 15)}
    )
    few = [{"wrong": 1.0}, {"mask": 1.0}, {"wrong": 0.5, "mask": 0.5}, {"relapse": 1.0}]
    rules = draw(st.sampled_from([*few, ALL_RULES]))
    longest = max(len(RULES[name]) for name in rules)
    horizons = [x for x in (2, 3, 4, 6, 255, 256, 1000) if x >= longest - 1]
    return TrajectoryConfig(
        horizon=draw(st.sampled_from(horizons)),
        rules=rules,
        doubt_share=draw(st.sampled_from([0.0, 0.2, 1.0])),
        blank_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        together_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        see_end=draw(st.booleans()),
        **size,
    )


@given(laws(), st.integers(0, 2**32), st.integers(0, 5), st.integers(1, 9))
def test_every_draw_is_a_trajectory(law, seed, num_rows, num_positions):
    rng = np.random.default_rng(seed)
    editable = rng.random((num_rows, num_positions)) < 0.7
    drawn = draw(num_rows, num_positions, law, seed, editable)
    drawn.check(vocab_size=VOCAB, horizon=law.horizon)
    assert drawn.num_segments == max(len(RULES[name]) for name in law.used_rules)
    assert drawn.ends.dtype == np.min_scalar_type(law.horizon)
    assert (drawn.step <= law.horizon - 1 + law.see_end).all()
    rules = rules_of(drawn)
    assert (rules[~editable] == KEEP).all()
    counts = Moves.of(drawn).rule_counts(drawn.target, editable, MASK)
    assert counts[RECORDED] == 0
    for name, count in counts.items():
        assert count == (rules[editable] == name).sum()
    moving = (rules != KEEP).sum(1)
    if law.noisy_count is not None:
        low, high = law.noisy_count
    else:
        low, high = (np.rint(rate * editable.sum(1)) for rate in law.noisy_rate)
    is_blank = (rules == "mask").sum(1) == editable.sum(1)
    assert ((moving >= np.minimum(low, editable.sum(1))) | is_blank).all()
    assert ((moving <= np.minimum(high, editable.sum(1))) | is_blank).all()


@given(laws(), st.integers(0, 2**32))
def test_states_follow_the_rules(law, seed):
    law = dataclasses.replace(law, horizon=min(law.horizon, 12))
    drawn = draw(3, 8, law, seed)
    all_states = drawn.states(law.horizon)
    assert all_states.shape == (law.horizon + 1, 3, 8)
    assert (all_states[-1] == drawn.target).all()
    for (b, n), rule in np.ndenumerate(rules_of(drawn)):
        path = all_states[:, b, n].tolist()
        target = int(drawn.target[b, n])
        turns = [path[0]] + [after for before, after in pairwise(path) if after != before]
        shows = RULES.get(rule, (Show.TARGET,))
        assert len(turns) == len(shows)
        for token, show in zip(turns, shows, strict=True):
            if show == Show.WRONG:
                assert token not in (MASK, target)
            else:
                assert token == (MASK if show == Show.MASK else target)


@given(laws(), st.integers(0, 2**32))
def test_numpy_and_torch_agree_on_states_and_labels(law, seed):
    drawn = draw(4, 6, law, seed)
    tensors = drawn.map(lambda x: torch.from_numpy(x.astype(np.int64)))
    here, there = drawn.state_at(drawn.step), tensors.state_at(tensors.step)
    assert (here == there.numpy()).all()
    labels = training.oracle_action(there, tensors.target, MASK)
    assert (oracle_action(here, drawn.target, MASK) == labels.numpy()).all()


def test_oracle_labels_by_hand():
    target = np.array([[1, 2, 3]])
    state = np.array([[4, MASK, 3]])
    assert oracle_action(state, target, MASK).tolist() == [[MASK, 2, 3]]


def law_of_ends(length, horizon):
    """Probability of every tuple of ends, by SPEC §3: each uniform on what leaves room."""
    shares = {(): 1.0}
    for left in reversed(range(length - 1)):  # ends still to come after this one
        longer = {}
        for ends, share in shares.items():
            first = ends[-1] + 1 if ends else 1
            choices = range(first, horizon - left + 1)
            longer |= {(*ends, end): share / len(choices) for end in choices}
        shares = longer
    return shares


def test_the_general_law_is_the_papers_for_two_and_three_segments():
    horizon = 4
    assert law_of_ends(2, horizon) == pytest.approx({(mu,): 1 / horizon for mu in range(1, 5)})
    pairs = {
        (beta, mu): 1 / (horizon - 1) / (horizon - beta)  # β ~ U{1..T-1}, μ ~ U{β+1..T}
        for beta in range(1, horizon)
        for mu in range(beta + 1, horizon + 1)
    }
    assert law_of_ends(3, horizon) == pytest.approx(pairs)


def test_ends_follow_their_law():
    law = TrajectoryConfig(horizon=6, noisy_rate=(1.0, 1.0), rules=ALL_RULES)
    drawn = draw(6000, 10, law)
    rules = rules_of(drawn)
    for name, share in ALL_RULES.items():
        assert abs((rules == name).mean() - share) < 0.011  # five standard errors at n = 60,000
        places = np.argwhere(rules == name)
        ends = drawn.ends[:, places[:, 0], places[:, 1]].T
        length = len(RULES[name])
        assert not ends[:, : drawn.num_segments - length].any()
        seen, counts = np.unique(ends[:, drawn.num_segments - length :], axis=0, return_counts=True)
        expected = law_of_ends(length, law.horizon)
        assert {tuple(x) for x in seen.tolist()} == set(expected)
        for end, count in zip(seen.tolist(), counts.tolist(), strict=True):
            share = expected[tuple(end)]
            assert abs(count / len(ends) - share) < 5 * (share * (1 - share) / len(ends)) ** 0.5
    for step in range(law.horizon):
        assert abs((drawn.step == step).mean() - 1 / law.horizon) < 0.03


def test_positions_that_move_together_share_their_ends_and_keep_the_law():
    horizon, size = 4, 6
    law = TrajectoryConfig(horizon=horizon, noisy_rate=(1.0, 1.0), together_share=0.25)
    drawn = draw(8000, size, law)
    rules = rules_of(drawn)
    wrong = (rules == "wrong").all(1)  # in all positions: one row in eight
    ends = np.moveaxis(drawn.ends, 0, -1)[wrong]  # [R, size, 2]
    alike = ends[(ends == ends[:, :1]).all((1, 2)), 0]  # [A, 2]
    shares = law_of_ends(3, horizon)
    # Six that each draw for themselves draw the same with probability Σ p⁶.
    expected = 0.25 + 0.75 * sum(p**size for p in shares.values())
    assert abs(len(alike) / wrong.sum() - expected) < 5 * (0.25 / wrong.sum()) ** 0.5
    for pair, share in shares.items():
        error = 5 * (share * (1 - share) / len(alike)) ** 0.5 + 0.01
        assert abs((alike == pair).all(1).mean() - share) < error
    masked = rules == "mask"  # these move by themselves
    assert {*drawn.ends[-1][masked].tolist()} == {*range(1, horizon + 1)}


def test_paths_of_each_length_that_start_visible_move_together():
    law = TrajectoryConfig(
        noisy_rate=(1.0, 1.0), rules=ALL_RULES, doubt_share=0.2, together_share=1.0
    )
    drawn = draw(200, 12, law)
    rules = rules_of(drawn)
    for row in range(200):
        for group in (("wrong", "doubt"), ("relapse2",)):
            where = np.isin(rules[row], group)
            assert len(np.unique(drawn.ends[:, row, where], axis=1).T) <= 1
    relapses = drawn.ends[:, rules == "relapse"]
    assert len(np.unique(relapses, axis=1).T) == len(law_of_ends(4, law.horizon))


def test_the_end_is_seen_where_the_law_says_so():
    law = TrajectoryConfig(horizon=3, noisy_rate=(1.0, 1.0), see_end=True)
    drawn = draw(4000, 5, law)
    for step in range(4):
        assert abs((drawn.step == step).mean() - 1 / 4) < 0.035
    at_end = drawn.step == 3
    assert (drawn.state_at(drawn.step)[at_end] == drawn.target[at_end]).all()


def test_noisy_subsets_are_uniform():
    law = TrajectoryConfig(noisy_count=(2, 2), rules={"wrong": 1.0})
    moving = draw(6000, 4, law).moves
    subsets, counts = np.unique(moving, axis=0, return_counts=True)
    assert len(subsets) == 6
    assert np.abs(counts / 6000 - 1 / 6).max() < 0.025


@given(laws(), st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 9))
def test_noisy_positions_are_candidates_and_as_many_as_can_be(law, seed, num_rows, num_positions):
    rng = np.random.default_rng(seed)
    editable = rng.random((num_rows, num_positions)) < 0.8
    candidates = editable & (rng.random(editable.shape) < 0.6)
    noisy = np.zeros(editable.shape, np.bool_)
    at, count = sample_noisy(candidates, editable, law, rng)
    noisy.ravel()[at] = True
    assert (noisy.sum(1) == count).all()
    assert not (noisy & ~candidates).any()
    assert (np.diff(at) > 0).all()
    if law.noisy_count is not None:
        low, high = law.noisy_count
    else:
        low, high = (np.rint(rate * editable.sum(1)) for rate in law.noisy_rate)
    assert (noisy.sum(1) >= np.minimum(low, candidates.sum(1))).all()
    assert (noisy.sum(1) <= np.minimum(high, candidates.sum(1))).all()


def test_doubt_is_a_share_of_the_positions_of_rule_wrong():
    law = TrajectoryConfig(
        noisy_rate=(1.0, 1.0), rules={"wrong": 0.5, "mask": 0.5}, doubt_share=0.2
    )
    assert abs((rules_of(draw(3000, 10, law)) == "doubt").mean() - 0.1) < 0.01
    assert (rules_of(draw(300, 10)) == "doubt").any()
    plain = TrajectoryConfig(noisy_count=(3, 7))
    assert not (rules_of(draw(300, 10, plain)) == "doubt").any()


def test_blank_rows_are_masked_wherever_they_are_editable():
    law = TrajectoryConfig(noisy_rate=(0.2, 0.5), rules={"wrong": 1.0}, blank_share=0.25)
    target = np.ones((4000, 6), np.uint8)
    editable = np.tile([False, True, True, True, True, True], (4000, 1))
    rng = np.random.default_rng(1)
    proposal = Uniform(np.arange(1, 5))
    drawn = sample_trajectories(target, editable, proposal, law, rng, mask_id=MASK)
    rules = rules_of(drawn)
    is_blank = (rules == "mask").any(1)
    assert 0.22 < is_blank.mean() < 0.28
    assert (rules[is_blank][:, 1:] == "mask").all()
    assert np.isin(rules[~is_blank], (KEEP, "wrong")).all()
    moving = (rules[~is_blank] == "wrong").sum(1)
    assert set(moving.tolist()) == {1, 2}  # round(0.2 · 5) to round(0.5 · 5)
    revealed = np.bincount(drawn.ends[-1][is_blank][:, 1:].ravel(), minlength=7)
    assert revealed[0] == 0
    assert revealed[1:].std() < 0.1 * revealed[1:].mean()  # U{1..T}


def test_a_blank_row_masks_what_its_proposal_cannot_replace():
    target = np.ones((50, 4), np.uint8)
    everywhere = np.ones(target.shape, np.bool_)
    law = TrajectoryConfig(noisy_rate=(1.0, 1.0), rules={"wrong": 1.0}, blank_share=1.0)
    same = SourceTokens(target, num_allowed=4)  # differs nowhere: nothing could be wrong
    rng = np.random.default_rng(0)
    drawn = sample_trajectories(target, everywhere, same, law, rng, mask_id=MASK)
    assert (drawn.state_at(0) == MASK).all()


def test_source_moves_only_where_the_images_differ():
    rng = np.random.default_rng(0)
    target = rng.integers(1, 5, (20, 30))
    source = np.where(rng.random(target.shape) < 0.3, rng.integers(1, 5, target.shape), target)
    law = TrajectoryConfig(noisy_rate=(1.0, 1.0), rules={"wrong": 1.0})
    everywhere = np.ones(target.shape, np.bool_)
    proposal = SourceTokens(source, num_allowed=4)
    drawn = sample_trajectories(target, everywhere, proposal, law, rng, mask_id=MASK)
    assert (drawn.state_at(0) == source).all()
    assert (drawn.moves == (source != target)).all()


@given(laws(), st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 9))
def test_moves_hold_all_of_a_trajectory(law, seed, num_rows, num_positions):
    drawn = draw(num_rows, num_positions, law, seed)
    moves = Moves.of(drawn)
    again = moves.over(drawn.target)
    for name, array in vars(drawn).items():
        assert np.array_equal(getattr(again, name), array), name
    assert moves.count.tolist() == drawn.moves.sum(1).tolist()
    wrong = [
        1
        for b, n in np.ndindex(*drawn.target.shape)
        for token in path_of(drawn, b, n)[0]
        if token not in (MASK, drawn.target[b, n])
    ]
    assert moves.num_wrong(drawn.target, MASK) == len(wrong)


def test_the_papers_rules_draw_what_earlier_versions_drew():
    """Data sets of schema 3 came from these draws, so their results can be made again."""
    rng = np.random.default_rng(3)
    target = rng.integers(1, 10, (2, 12)).astype(np.uint8)
    law = TrajectoryConfig(noisy_count=(4, 9), doubt_share=0.3, together_share=0.5)
    everywhere = np.ones(target.shape, np.bool_)
    drawn = sample_trajectories(target, everywhere, wrong_digit(9), law, rng, mask_id=MASK)
    wrong, masked, _ = drawn.tokens
    assert wrong.tolist() == [
        [8, 1, 2, 3, 2, 8, 6, 2, 8, 1, 3, 4],
        [5, 5, 3, 8, 7, 3, 1, 2, 5, 4, 8, 5],
    ]
    assert drawn.ends.tolist() == [
        [[0, 0, 0, 0, 0, 0, 1, 3, 1, 2, 4, 0], [2, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0, 0]],
        [[0, 0, 0, 2, 0, 0, 2, 4, 2, 5, 5, 0], [3, 0, 0, 3, 3, 3, 2, 0, 0, 0, 0, 5]],
    ]
    assert (masked == np.where(drawn.moves, MASK, target)).all()
    assert drawn.step.tolist() == [2, 2]


def test_draws_repeat_with_their_seed():
    first, again, other = draw(seed=5), draw(seed=5), draw(seed=6)
    for name, array in vars(first).items():
        assert (getattr(again, name) == array).all()
    assert (first.tokens != other.tokens).any()


def test_empty_batches_and_rows_without_editable_positions():
    assert draw(0, 12).step.shape == (0,)
    assert not draw(3, 4, editable=np.zeros((3, 4), np.bool_)).moves.any()


def test_narrow_and_wide_ids_give_the_same_draws():
    narrow, wide = draw(dtype=np.uint8), draw(dtype=np.int64)
    assert (narrow.tokens == wide.tokens).all()
    assert narrow.tokens.dtype == np.uint8


def test_a_path_that_no_rule_has_is_recorded():
    shows = {Show.MASK: MASK, Show.TARGET: 5, Show.WRONG: 7}
    paths = [
        path
        for length in range(1, 7)
        for path in itertools.product(shows, repeat=length)
        if path[-1] != Show.TARGET and all(a != b for a, b in pairwise(path))
    ]
    names = {path[:-1]: name for name, path in RULES.items()}
    for path in paths:
        tokens = np.array([[5]] * (6 - len(path)) + [[shows[show]] for show in path])
        ends = np.array([[0]] * (6 - len(path)) + [[i + 1] for i in range(len(path))])
        counts = count_rules(tokens, ends, np.array([5]), MASK)
        assert counts == dict.fromkeys(counts, 0) | {names.get(path, RECORDED): 1}


def test_ids_that_do_not_fit_their_type_are_refused():
    drawn = draw(2, 3)
    everywhere = np.ones((2, 3), np.bool_)
    law = TrajectoryConfig(noisy_rate=(1, 1), rules={"wrong": 1.0})
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="mask_id 256 does not fit the tokens' type uint8"):
        sample_trajectories(drawn.target, everywhere, wrong_digit(9), law, rng, mask_id=256)
    with pytest.raises(ValueError, match="mask_id 256 does not fit"):
        oracle_action(drawn.target, drawn.target, 256)
    far = Uniform(np.arange(500, 600))
    with pytest.raises(ValueError, match="proposed id 5.. does not fit the targets' type uint8"):
        sample_trajectories(drawn.target, everywhere, far, law, rng, mask_id=MASK)


def test_the_largest_random_number_stays_within_the_horizon(monkeypatch):
    highest = lambda rng, count: np.full(count, 1 - 2.0**-53)  # noqa: E731
    monkeypatch.setattr("remask.pipeline.trajectory.uniform_draws", highest)
    for horizon in (2, 3, 6, 255, 256, 1000):
        rules = ("wrong", "mask", "doubt")
        ends = sample_ends(np.arange(3), rules, horizon, np.random.default_rng(0))
        assert ends.tolist() == [[horizon - 1, 0, horizon - 1], [horizon] * 3]


def test_wrong_shapes_are_refused():
    target, everywhere = draw(2, 3).target, np.ones((2, 3), np.bool_)
    arguments = (wrong_digit(9), COUNT, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"target must be integers \[B, N\], got float64"):
        sample_trajectories(np.ones((2, 3)), everywhere, *arguments, mask_id=MASK)
    with pytest.raises(ValueError, match=r"editable must be bool \[2, 3\] like target"):
        sample_trajectories(target, everywhere[:, :2], *arguments, mask_id=MASK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"horizon": 1},
            "at least 2 for rule wrong .wrong → mask → target., got 1",
        ),
        ({"rules": {"relapse": 1.0}, "horizon": 2}, "horizon must be at least 3 for rule relapse"),
        ({"rules": {"relapes": 1.0}}, r"rules must be among \['wrong', .* got \['relapes'\]"),
        ({"rules": {}}, "rules must be among .* got none"),
        ({"rules": {"wrong": 0.7}}, r"shares of rules must .* sum to 1, got \[0.7\]"),
        ({"rules": {"wrong": 1.5, "mask": -0.5}}, "shares of rules must be 0 or more"),
        ({"noisy_count": None}, "give either noisy_count or noisy_rate"),
        ({"noisy_rate": (0, 1)}, "give either"),
        ({"noisy_count": (3, 2)}, "noisy range must be 0 <= low <= high"),
        ({"noisy_count": None, "noisy_rate": (0.5, 1.5)}, "got 0.5, 1.5"),
        ({"doubt_share": -0.1}, r"doubt_share must lie in \[0, 1\], got -0.1"),
        ({"blank_share": 1.1}, "blank_share must lie"),
        ({"together_share": 2.0}, "together_share must lie"),
    ],
)
def test_bad_laws_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrajectoryConfig(**({"noisy_count": (1, 2)} | settings))


def test_uniform_over_few_ids_still_finds_a_wrong_token():
    drawn = sample_trajectories(
        np.full((50, 4), 7),
        np.ones((50, 4), np.bool_),
        Uniform(np.array([3, 7])),
        TrajectoryConfig(noisy_rate=(1, 1), rules={"wrong": 1.0}),
        np.random.default_rng(0),
        mask_id=MASK,
    )
    assert (drawn.tokens[0] == 3).all()
