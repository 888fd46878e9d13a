"""Choosing positions: the highest scores against a sort, blocks against a count by hand."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from remask.models.decoding.selection import block_index, highest, open_block


def test_blocks_count_editable_positions_only():
    editable = torch.tensor([[False, True, True, False, True, True, True]])
    block = block_index(editable, 2)
    assert block[editable].tolist() == [0, 0, 1, 1, 2]
    masked = torch.tensor([[False, False, False, False, True, False, True]])
    assert open_block(block, masked).tolist() == [[1]]
    assert open_block(block, torch.zeros_like(masked)).tolist() == [[2]]


@given(
    st.lists(
        st.tuples(st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 13),
)
def test_highest_equals_a_sort(cells, count):
    score = torch.tensor([[s for s, _ in cells]])
    eligible = torch.tensor([[e for _, e in cells]])
    ranked = sorted((-s, i) for i, (s, e) in enumerate(cells) if e)
    expected = {i for _, i in ranked[:count]}
    assert set(highest(score, eligible, count)[0].nonzero().flatten().tolist()) == expected
