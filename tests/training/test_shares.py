"""Shares of a batch: whole rows that sum to it, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remask.training.recipe import TrainRecipe
from remask.training.shares import ShardShare, check_shares, rows_per_set


def sets(*shares):
    return [ShardShare(uri=f"data/{i}", share=share) for i, share in enumerate(shares)]


@pytest.mark.parametrize(
    ("shares", "batch_size", "rows"),
    [
        ([1.0], 7, [7]),
        ([0.5, 0.5], 8, [4, 4]),
        ([0.5, 0.5], 7, [4, 3]),  # a tie, which goes to the first
        ([0.29, 0.71], 100, [29, 71]),  # 0.29 · 100 is below 29 in floating point
        ([0.4, 0.35, 0.25], 10, [4, 4, 2]),
        ([0.1, 0.3, 0.6], 4, [1, 1, 2]),
    ],
)
def test_rows_are_rounded_by_largest_remainder(shares, batch_size, rows):
    assert rows_per_set(sets(*shares), batch_size) == rows


@given(
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=6),
    batch_size=st.integers(1, 1 << 24),
)
def test_rows_sum_to_the_batch_and_are_within_one_of_their_share(weights, batch_size):
    shares = [x / sum(weights) for x in weights]
    rows = rows_per_set(sets(*shares), batch_size)
    assert sum(rows) == batch_size
    for count, share in zip(rows, shares, strict=True):
        assert abs(count - share * batch_size) < 1 + 1e-6


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([], "shards is an empty list; name at least one data set"),
        (sets(0.0, 1.0), r"shards.0.share must lie in \(0, 1\], got 0.0"),
        (sets(1.5, -0.5), r"shards.0.share must lie in \(0, 1\], got 1.5"),
        (sets(0.5, math.nan), r"shards.1.share must lie in \(0, 1\], got nan"),
        (sets(0.5, 0.4), "shards: the shares 0.5, 0.4 must sum to 1, got 0.9"),
        (sets(0.5, 0.50001), "the shares 0.5, 0.50001 must sum to 1, got 1.00001"),
        (
            [ShardShare(uri="a/", share=0.5), ShardShare(uri="a", share=0.5)],
            "shards names a 2 times; name it once",
        ),
        (
            sets(0.99, 0.01),
            "shards: data/1 has a share of 0.01, which is no row of a batch of 16; raise the "
            "share, or batch_size to 100 or more",
        ),
    ],
)
def test_bad_shares_are_refused(chosen, message):
    with pytest.raises(ValueError, match=message):
        check_shares(chosen, 16)
    with pytest.raises(ValueError, match=message):
        TrainRecipe(shards=tuple(chosen), output="run", start="x", steps=1, batch_size=16)


def test_the_batch_size_that_an_error_names_would_do():
    check_shares(sets(0.99, 0.01), 100)


def test_shares_may_miss_one_by_rounding():
    thirds = sets(0.3333333, 0.3333333, 0.3333333)
    check_shares(thirds, 16)
    assert rows_per_set(thirds, 3 << 20) == [1 << 20] * 3
