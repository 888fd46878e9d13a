"""The order of rows by itself: each lane serves its rows once an epoch."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remask.training.order import Order


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    batch_size=st.integers(1, 24),
    buffer=st.integers(1, 100),
    seed=st.integers(0, 5),
)
def test_each_lane_serves_every_row_of_its_stretch_once_an_epoch(sizes, batch_size, buffer, seed):
    order = Order(np.array(sizes), batch_size, seed, buffer)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for epoch in range(3):
        seen = Counter()
        for lane in range(order.num_lanes):
            stretch = order.stretch(lane, epoch)
            at = stretch.start
            while at < stretch.stop:
                block = order.block(lane, at)
                assert {order.epoch(lane, i) for i in block} == {epoch}
                assert block.start == at
                rows = [starts[s] + r for s, rs in order.pieces(lane, block) for r in rs]
                turn = order.shuffle(lane, block, np.arange(len(rows)) % 3)
                seen.update(int(rows[i]) for i in turn)
                at = block.stop
        assert seen == Counter(range(sum(sizes)))
