"""Trajectories: their law, their encoding, their states and labels."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remask import training
from remask.models.history import segments_from_boundaries
from remask.pipeline import (
    Rule,
    Source,
    Trajectories,
    TrajectoryConfig,
    Uniform,
    check_trajectories,
    oracle_action,
    sample_trajectories,
    state_at,
    wrong_digit,
)
from remask.pipeline.trajectory import blank_rows, sample_boundaries, sample_noisy

MASK, VOCAB = 0, 10
COUNT = TrajectoryConfig(noisy_count=(3, 7), doubt_share=0.3)


def draw(num_rows=50, num_positions=12, config=COUNT, seed=0, editable=None, dtype=np.uint8):
    rng = np.random.default_rng(seed)
    target = rng.integers(1, VOCAB, (num_rows, num_positions)).astype(dtype)
    if editable is None:
        editable = np.ones(target.shape, np.bool_)
    return sample_trajectories(target, editable, wrong_digit(9), config, rng)


@st.composite
def laws(draw):
    low, high = sorted((draw(st.integers(0, 15)), draw(st.integers(0, 15))))
    size = (
        {"noisy_count": (low, high)}
        if draw(st.booleans())
        else {"noisy_rate": (low / 15, high / 15)}
    )
    return TrajectoryConfig(
        horizon=draw(st.sampled_from([2, 3, 6, 255, 256, 1000])),
        wrong_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        doubt_share=draw(st.sampled_from([0.0, 0.2, 1.0])),
        together_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        see_end=draw(st.booleans()),
        **size,
    )


@given(laws(), st.integers(0, 2**32), st.integers(0, 5), st.integers(1, 9))
def test_every_draw_is_a_trajectory(law, seed, num_rows, num_positions):
    rng = np.random.default_rng(seed)
    editable = rng.random((num_rows, num_positions)) < 0.7
    rows = draw(num_rows, num_positions, law, seed, editable)
    check_trajectories(rows, horizon=law.horizon, vocab_size=VOCAB, mask_id=MASK)
    rules = rows.rules()
    assert (rules[~editable] == Rule.KEEP).all()
    for rule, count in rows.rule_counts().items():
        assert count == (rules[editable] == rule).sum()
    moving = (rules != Rule.KEEP).sum(1)
    if law.noisy_count is not None:
        low, high = law.noisy_count
    else:
        low, high = (np.rint(rate * editable.sum(1)) for rate in law.noisy_rate)
    assert (moving >= np.minimum(low, editable.sum(1))).all()
    assert (moving <= np.minimum(high, editable.sum(1))).all()
    assert rows.masked_at.dtype == rows.revealed_at.dtype == np.min_scalar_type(law.horizon)


@given(laws(), st.integers(0, 2**32))
def test_states_follow_the_rules(law, seed):
    rows = draw(3, 8, dataclasses.replace(law, horizon=min(law.horizon, 12)), seed)
    horizon = min(law.horizon, 12)
    all_states = np.stack([state_at(rows, k, MASK) for k in range(horizon + 1)])
    assert all_states.shape == (horizon + 1, 3, 8)
    assert (all_states[-1] == rows.target).all()
    for (b, n), rule in np.ndenumerate(rows.rules()):
        path = all_states[:, b, n].tolist()
        target, wrong = int(rows.target[b, n]), int(rows.wrong[b, n])
        turns = [path[0]] + [after for before, after in pairwise(path) if after != before]
        expected = {
            Rule.KEEP: [target],
            Rule.MASK: [MASK, target],
            Rule.WRONG: [wrong, MASK, target],
            Rule.DOUBT: [target, MASK, target],
        }
        assert turns == expected[Rule(rule)]


@given(laws(), st.integers(0, 2**32))
def test_numpy_and_torch_agree_on_states_and_labels(law, seed):
    rows = draw(4, 6, law, seed)
    tensors = [
        torch.from_numpy(x.astype(np.int64))
        for x in (rows.target, rows.wrong, rows.masked_at, rows.revealed_at, rows.step)
    ]
    here = state_at(rows, rows.step, MASK)
    there = segments_from_boundaries(*tensors, MASK).state_at(tensors[4])
    assert (here == there.numpy()).all()
    labels = training.oracle_action(there, tensors[0], MASK)
    assert (oracle_action(here, rows.target, MASK) == labels.numpy()).all()


def test_oracle_labels_by_hand():
    target = np.array([[1, 2, 3]])
    state = np.array([[4, MASK, 3]])
    assert oracle_action(state, target, MASK).tolist() == [[MASK, 2, 3]]


def test_boundaries_follow_their_law():
    horizon = 4
    law = TrajectoryConfig(horizon=horizon, noisy_rate=(1.0, 1.0), wrong_share=0.6)
    rows = draw(4000, 10, law)
    rules = rows.rules()
    wrong = rules == Rule.WRONG
    assert abs(wrong.mean() - 0.6) < 0.012  # five standard errors at n = 40,000
    pairs = {}
    for beta in range(1, horizon):
        for mu in range(beta + 1, horizon + 1):  # β ~ U{1..T-1}, μ ~ U{β+1..T}
            pairs[beta, mu] = 1 / (horizon - 1) / (horizon - beta)
    count = int(wrong.sum())
    for (beta, mu), share in pairs.items():
        found = ((rows.masked_at == beta) & (rows.revealed_at == mu) & wrong).sum() / count
        assert abs(found - share) < 5 * (share * (1 - share) / count) ** 0.5
    masked = rules == Rule.MASK
    for mu in range(1, horizon + 1):
        assert abs((rows.revealed_at[masked] == mu).mean() - 1 / horizon) < 0.02
    for step in range(horizon):
        assert abs((rows.step == step).mean() - 1 / horizon) < 0.035


def test_rows_that_move_together_share_their_boundaries_and_keep_the_law():
    horizon, size = 4, 6
    law = TrajectoryConfig(
        horizon=horizon, noisy_rate=(1.0, 1.0), wrong_share=0.7, together_share=0.25
    )
    rows = draw(8000, size, law)
    wrong = (rows.rules() == Rule.WRONG).all(1)  # in all positions: one row in eight
    boundaries = np.stack([rows.masked_at, rows.revealed_at], -1)[wrong]  # [R, size, 2]
    alike = boundaries[(boundaries == boundaries[:, :1]).all((1, 2)), 0]  # [A, 2]
    shares = {
        (beta, mu): 1 / (horizon - 1) / (horizon - beta)
        for beta in range(1, horizon)
        for mu in range(beta + 1, horizon + 1)
    }
    # Six that each draw for themselves draw the same with probability Σ p⁶.
    expected = 0.25 + 0.75 * sum(p**size for p in shares.values())
    assert abs(len(alike) / wrong.sum() - expected) < 5 * (0.25 / wrong.sum()) ** 0.5
    for pair, share in shares.items():
        error = 5 * (share * (1 - share) / len(alike)) ** 0.5 + 0.01
        assert abs((alike == pair).all(1).mean() - share) < error
    masked = rows.rules() == Rule.MASK  # these stay by themselves
    assert {*rows.revealed_at[masked].tolist()} == {*range(1, horizon + 1)}


def test_the_end_is_seen_where_the_law_says_so():
    law = TrajectoryConfig(horizon=3, noisy_rate=(1.0, 1.0), see_end=True)
    rows = draw(4000, 5, law)
    for step in range(4):
        assert abs((rows.step == step).mean() - 1 / 4) < 0.035
    at_end = rows.step == 3
    assert (state_at(rows, rows.step, MASK)[at_end] == rows.target[at_end]).all()


def test_noisy_subsets_are_uniform():
    law = TrajectoryConfig(noisy_count=(2, 2), wrong_share=1.0)
    rows = draw(6000, 4, law)
    moving = rows.rules() != Rule.KEEP
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


def test_doubt_is_a_share_of_what_would_start_wrong():
    law = TrajectoryConfig(noisy_rate=(1.0, 1.0), wrong_share=0.5, doubt_share=0.2)
    rules = draw(3000, 10, law).rules()
    assert abs((rules == Rule.DOUBT).mean() - 0.1) < 0.01
    assert (draw(300, 10).rules() == Rule.DOUBT).any()
    assert not (draw(300, 10, TrajectoryConfig(noisy_count=(3, 7))).rules() == Rule.DOUBT).any()


def test_blank_rows_are_all_masked_at_first_and_others_stay_as_they_were():
    law = TrajectoryConfig(noisy_rate=(0.2, 0.5), wrong_share=1.0, blank_share=0.25)
    target = np.ones((4000, 6), np.uint8)
    editable = np.tile([False, True, True, True, True, True], (4000, 1))
    before = sample_trajectories(
        target, editable, Uniform(np.arange(1, 5)), law, np.random.default_rng(1)
    )
    after = blank_rows(before, law, np.random.default_rng(2))
    check_trajectories(after, horizon=law.horizon, vocab_size=5, mask_id=0)
    is_blank = (state_at(after, 0, 0) == 0).sum(1) == 5
    assert 0.22 < is_blank.mean() < 0.28
    for name in ("wrong", "masked_at", "revealed_at"):
        assert np.array_equal(getattr(after, name)[~is_blank], getattr(before, name)[~is_blank])
    revealed = np.bincount(after.revealed_at[is_blank][:, 1:].ravel(), minlength=7)
    assert revealed[0] == 0
    assert revealed[1:].std() < 0.1 * revealed[1:].mean()  # U{1..T}


def test_source_moves_only_where_the_images_differ():
    rng = np.random.default_rng(0)
    target = rng.integers(1, 5, (20, 30))
    source = np.where(rng.random(target.shape) < 0.3, rng.integers(1, 5, target.shape), target)
    law = TrajectoryConfig(noisy_rate=(1.0, 1.0), wrong_share=1.0)
    rows = sample_trajectories(
        target, np.ones(target.shape, np.bool_), Source(source, num_allowed=4), law, rng
    )
    assert (state_at(rows, 0, MASK) == source).all()
    assert ((rows.rules() == Rule.WRONG) == (source != target)).all()


@given(laws(), st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 9))
def test_noise_says_all_that_its_trajectories_do(law, seed, num_rows, num_positions):
    rows = draw(num_rows, num_positions, law, seed)
    noise = rows.noise()
    again = noise.over(rows.target, rows.editable)
    for name, array in vars(rows).items():
        assert np.array_equal(getattr(again, name), array), name
    assert noise.count.tolist() == [(row > 0).sum() for row in rows.revealed_at]


def test_draws_repeat_with_their_seed():
    first, again, other = draw(seed=5), draw(seed=5), draw(seed=6)
    for name, array in vars(first).items():
        assert (getattr(again, name) == array).all()
    assert (first.wrong != other.wrong).any()


def test_empty_batches_and_rows_without_editable_positions():
    assert draw(0, 12).step.shape == (0,)
    rows = draw(3, 4, editable=np.zeros((3, 4), np.bool_))
    assert (rows.rules() == Rule.KEEP).all()


def test_narrow_and_wide_ids_give_the_same_draws():
    narrow, wide = draw(dtype=np.uint8), draw(dtype=np.int64)
    assert (narrow.wrong == wide.wrong).all()
    assert narrow.wrong.dtype == np.uint8


BAD = [
    ({"target": MASK}, r"target must not be MASK \(0\), got 0 at \[1, 2\]"),
    ({"target": 12}, r"target must be an id below the vocabulary's size, got 12"),
    ({"wrong": MASK}, r"wrong must not be MASK"),
    ({"wrong": 12}, r"wrong must be an id"),
    ({"masked_at": 5}, r"masked_at must not exceed revealed_at, got 5 at \[1, 2\]"),
    ({"masked_at": 4}, "a token masked at a step must be revealed at a later one, got 4"),
    ({"masked_at": -1}, "masked_at must be 0 or more, got -1"),
    ({"revealed_at": 7}, "revealed_at must not exceed horizon 6, got 7"),
    ({"editable": False}, "only editable positions may move, got 4"),
    ({"masked_at": 0}, "wrong must equal target unless it is shown, got 3"),
    ({"step": 7}, r"step must lie in 0 .. 6, got 7 at \[1\]"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_impossible_trajectories_are_refused(changes, message):
    values = {"target": 2, "wrong": 3, "masked_at": 1, "revealed_at": 4}
    arrays = {name: np.full((2, 5), value) for name, value in values.items()}
    arrays |= {"step": np.array([0, 1]), "editable": np.ones((2, 5), np.bool_)}
    check_trajectories(Trajectories(**arrays), horizon=6, vocab_size=VOCAB, mask_id=MASK)
    for name, value in changes.items():
        arrays[name][(1, 2) if arrays[name].ndim == 2 else 1] = value
    with pytest.raises(ValueError, match=message):
        check_trajectories(Trajectories(**arrays), horizon=6, vocab_size=VOCAB, mask_id=MASK)


def test_ids_that_do_not_fit_their_type_are_refused():
    rows = draw(2, 3)
    with pytest.raises(ValueError, match="mask_id 256 does not fit the tokens' type uint8"):
        state_at(rows, 0, 256)
    with pytest.raises(ValueError, match="mask_id 256 does not fit"):
        oracle_action(rows.target, rows.target, 256)
    law = TrajectoryConfig(noisy_rate=(1, 1), wrong_share=1.0)
    far = Uniform(np.arange(500, 600))
    with pytest.raises(ValueError, match="proposed id 5.. does not fit the targets' type uint8"):
        sample_trajectories(rows.target, rows.editable, far, law, np.random.default_rng(0))


def test_the_largest_random_number_stays_within_the_horizon(monkeypatch):
    highest = lambda rng, count: np.full(count, 1 - 2.0**-53)  # noqa: E731
    monkeypatch.setattr("remask.pipeline.trajectory.chances", highest)
    for horizon in (2, 3, 6, 255, 256, 1000):
        rule = np.array([Rule.WRONG, Rule.MASK, Rule.DOUBT])
        masked_at, revealed_at = sample_boundaries(rule, horizon, np.random.default_rng(0))
        assert masked_at.tolist() == [horizon - 1, 0, horizon - 1]
        assert revealed_at.tolist() == [horizon] * 3


def test_wrong_shapes_are_refused():
    rows = draw(2, 3)
    for name in ("wrong", "step", "editable"):
        broken = dataclasses.replace(rows, **{name: getattr(rows, name)[:1]})
        with pytest.raises(ValueError, match=f"{name} must be"):
            check_trajectories(broken, horizon=6, vocab_size=VOCAB, mask_id=MASK)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"target must be integers \[B, N\], got float64"):
        sample_trajectories(np.ones((2, 3)), rows.editable, wrong_digit(9), COUNT, rng)
    with pytest.raises(ValueError, match=r"editable must be bool \[2, 3\] like target"):
        sample_trajectories(rows.target, rows.editable[:, :2], wrong_digit(9), COUNT, rng)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noisy_count": (1, 2), "horizon": 1}, "horizon must be at least 2"),
        ({}, "give either noisy_count or noisy_rate"),
        ({"noisy_count": (1, 2), "noisy_rate": (0, 1)}, "give either"),
        ({"noisy_count": (3, 2)}, "noisy range must be 0 <= low <= high"),
        ({"noisy_rate": (0.5, 1.5)}, "got 0.5, 1.5"),
        ({"noisy_count": (1, 2), "wrong_share": 1.2}, r"wrong_share must lie in \[0, 1\], got 1.2"),
        ({"noisy_count": (1, 2), "doubt_share": -0.1}, "doubt_share must lie"),
        ({"noisy_count": (1, 2), "together_share": 2.0}, "together_share must lie"),
    ],
)
def test_bad_laws_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TrajectoryConfig(**settings)


def test_uniform_over_few_ids_still_finds_a_wrong_token():
    rows = sample_trajectories(
        np.full((50, 4), 7),
        np.ones((50, 4), np.bool_),
        Uniform(np.array([3, 7])),
        TrajectoryConfig(noisy_rate=(1, 1), wrong_share=1.0),
        np.random.default_rng(0),
    )
    assert (rows.wrong == 3).all()
