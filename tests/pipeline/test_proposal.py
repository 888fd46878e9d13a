"""Proposals: what they draw, what they never draw, and their distance to uniform."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from remask.pipeline import SourceTokens, TopK, Uniform, objective_shift_bound, wrong_digit


def everywhere(shape):
    return np.nonzero(np.ones(shape, np.bool_))


def frequencies(proposal, target_token, count, vocab_size, at=(0, 0)):
    target = np.full(count, target_token)
    row, position = (np.full(count, i) for i in at)
    drawn = proposal.draw(target, row, position, np.random.default_rng(0))
    return np.bincount(drawn, minlength=vocab_size) / count


@pytest.mark.parametrize("target", [2, 5, 9, 4])  # 4 itself may not be proposed
def test_uniform_draws_all_others_alike(target):
    ids = np.array([2, 5, 6, 9])
    observed = frequencies(Uniform(ids), target, 30_000, 10)
    others = [i for i in ids if i != target]
    assert observed[others] == pytest.approx(1 / len(others), abs=0.015)
    assert observed.sum() == pytest.approx(observed[others].sum())


def test_wrong_digit_is_another_digit():
    observed = frequencies(wrong_digit(9), 5, 40_000, 10)
    assert observed[0] == observed[5] == 0
    assert observed[[1, 2, 3, 4, 6, 7, 8, 9]] == pytest.approx(1 / 8, abs=0.01)


@pytest.fixture
def guesses():
    """Two positions with four guesses each; the target is 3."""
    candidates = np.array([[[3, 5, 7, 1], [2, 4, 3, 6]]], np.uint16)
    probs = np.array([[[0.5, 0.3, 0.15, 0.05], [0.4, 0.4, 0.1, 0.1]]])
    return candidates, np.log(probs).astype(np.float16)


def test_top_k_is_the_softmax_without_the_target(guesses):
    proposal = TopK(*guesses, num_allowed=9)
    observed = frequencies(proposal, 3, 40_000, 10, at=(0, 0))
    expected = np.zeros(10)
    expected[[5, 7, 1]] = np.array([0.3, 0.15, 0.05]) / 0.5
    assert observed == pytest.approx(expected, abs=0.012)
    assert observed[3] == 0


def test_top_k_may_take_its_candidates_all_alike(guesses):
    candidates, log_probs = guesses
    log_probs[0, 0, 3] = -np.inf
    proposal = TopK(candidates, log_probs, num_allowed=9, is_uniform=True)
    observed = frequencies(proposal, 3, 20_000, 10, at=(0, 0))
    expected = np.zeros(10)
    expected[[5, 7]] = 0.5
    assert observed == pytest.approx(expected, abs=0.015)
    distance = proposal.distance(np.array([3]), np.array([0]), np.array([0]))
    assert distance == pytest.approx([total_variation({5: 0.5, 7: 0.5}, 3, range(1, 10))])


@given(
    arrays(np.int64, (3, 4, 5), elements=st.integers(1, 8)),
    arrays(np.float32, (3, 4, 5), elements=st.sampled_from([-math.inf, -9.0, -1.0, 0.0])),
    st.integers(0, 2**32),
)
def test_top_k_draws_usable_candidates_only(candidates, log_probs, seed):
    target = np.random.default_rng(seed).integers(1, 9, (3, 4))
    proposal = TopK(candidates, log_probs, num_allowed=8)
    row, position = np.nonzero(proposal.supports(target))
    drawn = proposal.draw(target[row, position], row, position, np.random.default_rng(seed))
    for token, b, n in zip(drawn, row, position, strict=True):
        usable = candidates[b, n][np.isfinite(log_probs[b, n])]
        assert token in usable
        assert token != target[b, n]


def total_variation(proposal_probs, target, ids):
    """½ Σ |p - u| over all ids, written out."""
    others = [i for i in ids if i != target]
    uniform = 1 / len(others)
    return 0.5 * sum(abs(proposal_probs.get(i, 0.0) - uniform) for i in others)


def test_distances_equal_the_full_sum(guesses):
    ids, target = range(1, 10), np.array([3, 3])
    row, position = np.array([0, 0]), np.array([0, 1])
    expected = [
        total_variation({5: 0.6, 7: 0.3, 1: 0.1}, 3, ids),
        total_variation({2: 4 / 9, 4: 4 / 9, 6: 1 / 9}, 3, ids),
    ]
    observed = TopK(*guesses, num_allowed=9).distance(target, row, position)
    assert observed == pytest.approx(expected, abs=1e-3)
    source = SourceTokens(np.array([[5, 2]]), num_allowed=9)
    assert source.distance(target, row, position) == pytest.approx(
        [total_variation({5: 1.0}, 3, ids), total_variation({2: 1.0}, 3, ids)]
    )
    assert Uniform(np.arange(1, 10)).distance(target, row, position).tolist() == [0, 0]


def test_source_gives_the_sources_own_token():
    source = SourceTokens(np.array([[5, 2, 3]]), num_allowed=9)
    target = np.array([[5, 4, 3]])
    assert source.supports(target).tolist() == [[False, True, False]]
    drawn = source.draw(np.array([4]), np.array([0]), np.array([1]), np.random.default_rng(0))
    assert drawn.tolist() == [2]


def test_bound_is_layer_three():
    bound = objective_shift_bound(np.array([10, 20]), np.array([0.5, 1.5]), wrong_rate=0.3)
    assert bound == pytest.approx(2 * -math.log(1e-8) * 0.3 * (10 * 0.5 + 20 * 1.5) / 2)
    assert objective_shift_bound(np.array([81]), np.array([0.0]), wrong_rate=0.7) == 0
    assert objective_shift_bound(np.array([]), np.array([]), wrong_rate=0.7) == 0


def test_bad_proposals_are_refused(guesses):
    candidates, log_probs = guesses
    with pytest.raises(ValueError, match="two or more, ascending and distinct"):
        Uniform(np.array([5, 3]))
    with pytest.raises(ValueError, match="two or more"):
        Uniform(np.array([5]))
    with pytest.raises(ValueError, match=r"one shape \[B, N, k\], got \[1, 2, 4\] and \[1, 2, 3\]"):
        TopK(candidates, log_probs[..., :3], num_allowed=9)
    with pytest.raises(ValueError, match=r"log_probs is NaN at \[0, 0, 0\]; probe again"):
        TopK(candidates, np.full_like(log_probs, np.nan), num_allowed=9)
    with pytest.raises(ValueError, match="num_allowed must be at least 2, got 1"):
        TopK(candidates, log_probs, num_allowed=1)
    with pytest.raises(ValueError, match="num_allowed must be at least 2, got 1"):
        SourceTokens(candidates[..., 0], num_allowed=1)
    with pytest.raises(ValueError, match=r"for targets \[1, 3\], got \[1, 2, 4\]"):
        TopK(candidates, log_probs, num_allowed=9).supports(np.ones((1, 3)))
    only_target = TopK(np.full((1, 1, 2), 3), np.zeros((1, 1, 2)), num_allowed=9)
    with pytest.raises(ValueError, match="no candidate besides the target at row 0, position 0"):
        only_target.draw(np.array([3]), *everywhere((1, 1)), np.random.default_rng(0))
    with pytest.raises(ValueError, match="source and target must share one shape"):
        SourceTokens(np.zeros((1, 3)), num_allowed=9).supports(np.zeros((1, 2)))
