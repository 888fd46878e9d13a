"""The order of training rows, as a pure function of seed and epoch.

In each epoch the shards are shuffled and laid end to end, and this line of rows is cut into lanes
of equal length. Each lane shuffles its rows block by block, and every batch takes the same number
of rows from every lane. Nothing here depends on the number of ranks, so a run may continue with
more or fewer of them, and its position in the data is one number: the batches done.

Within a block rows are grouped by length, and all lanes serve groups of similar length at the same
time, which keeps padding small on every rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from remask.models.ranges import Range, check_fields
from remask.pipeline.moves import Ints

MAX_LANES = 8
_SHARDS, _ROWS, _GROUPS = range(3)  # keys that separate the random streams


@dataclass(frozen=True)
class Order:
    """Maps lanes and positions to shards and rows.

    A lane is an endless sequence of positions: its stretch of epoch 0, then of epoch 1, and so on.
    """

    sizes: Ints
    """Rows of each shard, [S]."""
    batch_size: Annotated[int, Range("[1, inf)")]
    """Rows per step, over all ranks."""
    seed: int
    buffer: Annotated[int, Range("[1, inf)")]
    """Rows that are shuffled together, over all lanes."""
    stream: Annotated[int, Range("[0, inf)")] = 0
    """Orders of one seed with different numbers shuffle shards and rows differently. Groups of
    lengths come in the same order, so that sets of similar rows serve similar lengths together."""

    def __post_init__(self) -> None:
        check_fields(self)

    @cached_property
    def num_rows(self) -> int:
        """Rows per epoch."""
        return int(self.sizes.sum())

    @cached_property
    def num_lanes(self) -> int:
        """The largest number up to `MAX_LANES` that divides a batch and leaves each lane a row."""
        limit = min(MAX_LANES, self.num_rows)
        return max(n for n in range(1, limit + 1) if self.batch_size % n == 0)

    @property
    def rows_per_lane(self) -> int:
        """Rows that a batch takes from each lane."""
        return self.batch_size // self.num_lanes

    def epoch(self, lane: int, position: int) -> int:
        """The epoch of a lane's position."""
        return (self.num_lanes * (position + 1) - 1 - lane) // self.num_rows

    def stretch(self, lane: int, epoch: int) -> range:
        """A lane's positions within an epoch.

        The rows served so far never differ by more than one between lanes, so an epoch is complete
        exactly when all its rows have been served.
        """
        first, last = ((self.num_rows * e + lane) // self.num_lanes for e in (epoch, epoch + 1))
        return range(first, last)

    def block(self, lane: int, position: int) -> range:
        """The positions of a lane that are shuffled together with this one; all of one epoch."""
        stretch = self.stretch(lane, self.epoch(lane, position))
        size = max(1, self.buffer // self.batch_size) * self.rows_per_lane
        first = position // size * size
        return range(max(first, stretch.start), min(first + size, stretch.stop))

    def pieces(self, lane: int, block: range) -> Iterator[tuple[int, range]]:
        """The shards that a block covers, and the rows of each."""
        epoch = self.epoch(lane, block.start)
        shards, starts = self._line(epoch)
        rows_before = sum(len(self.stretch(other, epoch)) for other in range(lane))
        at = rows_before + block.start - self.stretch(lane, epoch).start
        stop = at + len(block)
        while at < stop:
            i = int(np.searchsorted(starts, at, side="right")) - 1
            end = min(stop, int(starts[i + 1]))
            yield int(shards[i]), range(at - int(starts[i]), end - int(starts[i]))
            at = end

    def shuffle(self, lane: int, block: range, lengths: Ints) -> Ints:
        """The permutation in which a block's rows are served, given their lengths.

        Rows of a batch have similar lengths, and all lanes serve the same sequence of lengths.
        Rows of equal length are in random order, drawn for each lane separately.
        """
        epoch = self.epoch(lane, block.start)
        shuffled = self._own_rng(_ROWS, epoch, lane, block.start).permutation(len(block))
        by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
        size = self.rows_per_lane
        head = min(-block.start % size, len(block))  # completes a batch that the last block began
        num_groups = (len(block) - head) // size
        groups = by_length[: num_groups * size].reshape(num_groups, size)
        permutation = self._rng(_GROUPS, epoch, block.start // size).permutation(num_groups)
        body, rest = groups[permutation].reshape(-1), by_length[num_groups * size :]
        return np.concatenate([rest[:head], body, rest[head:]])

    def _line(self, epoch: int) -> tuple[Ints, Ints]:
        """The epoch's shards in order, [S], and the first row of each in the line, [S + 1]."""
        shards = self._own_rng(_SHARDS, epoch).permutation(len(self.sizes))
        return shards, np.concatenate([[0], np.cumsum(self.sizes[shards])])

    def _own_rng(self, *key: int) -> np.random.Generator:
        return self._rng(*key, self.stream) if self.stream else self._rng(*key)

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])
