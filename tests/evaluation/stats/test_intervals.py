"""Intervals against other ways to the same numbers."""

import numpy as np
import pytest

from remask.evaluation.stats.intervals import Z, bootstrap_ratio, wilson


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (3, 10), (934, 1000), (1000, 1000)])
def test_wilson_ends_are_the_shares_that_lie_z_deviations_away(hits, count):
    for end in wilson(hits, count):
        if 0 < end < 1:
            deviation = np.sqrt(end * (1 - end) / count)
            assert abs(hits / count - end) == pytest.approx(Z * deviation)
    low, high = wilson(hits, count)
    assert low <= hits / count <= high


def test_wilson_of_no_samples_is_the_whole_range():
    assert wilson(0, 0) == (0.0, 1.0)


def test_bootstrap_of_a_mean_is_near_the_normal_interval():
    values = np.random.default_rng(1).exponential(2.0, 2000)
    low, high = bootstrap_ratio(values, np.ones(2000))
    reach = Z * values.std() / np.sqrt(2000)
    assert low == pytest.approx(values.mean() - reach, abs=0.02)
    assert high == pytest.approx(values.mean() + reach, abs=0.02)


def test_bootstrap_resamples_whole_boards():
    # All cells of a board alike: 100 boards of 10 cells say no more than 100 cells would.
    hits = np.repeat([0, 10], 50)
    low, high = bootstrap_ratio(hits, np.full(100, 10))
    by_boards, by_cells = wilson(50, 100), wilson(500, 1000)
    assert low == pytest.approx(by_boards[0], abs=0.02)
    assert high == pytest.approx(by_boards[1], abs=0.02)
    assert high - low > 2 * (by_cells[1] - by_cells[0])


def test_bootstrap_is_the_same_every_time():
    parts, wholes = np.arange(50) % 3, np.arange(50) % 4 + 1
    assert bootstrap_ratio(parts, wholes) == bootstrap_ratio(parts, wholes)
    assert bootstrap_ratio([0, 0], [0, 0]) == (0.0, 1.0)
