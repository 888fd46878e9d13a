"""Several shard sets as one stream of batches: which lane of which set each row comes from.

Every batch takes a fixed number of rows from each set, and each set has an `Order` of its own with
this number as its batch size. So within a set all that `order.py` promises holds, and the position
in every set follows from the number of the step alone.

A batch holds the rows of lanes one after another, and the lanes of all sets are interleaved in
proportion: of two sets with lanes A and B, as A0 B0 A1 B1 ... So every contiguous part of a batch,
which is what a rank owns, has nearly the same share of each set, whatever the number of ranks.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from remask.pipeline.moves import Ints
from remask.training.order import Order
from remask.training.shard_set import ShardSet


@dataclass(frozen=True)
class LanePart:
    """Rows of a batch that come from one lane."""

    set_index: int
    lane: int
    rows: range
    """Rows of the lane's share of the batch."""


@dataclass(frozen=True)
class Mixture:
    """Shard sets, and how batches are drawn from them."""

    sets: tuple[ShardSet, ...]
    rows_per_set: tuple[int, ...]
    """Rows of every batch that come from each set."""
    seed: int
    buffer: int
    """Rows that are shuffled together, over all sets."""
    first_steps: tuple[int, ...] | None = None
    """Step at which the order of each set begins. Defaults to 0 for all."""

    @staticmethod
    def single(shards: ShardSet, batch_size: int, seed: int, buffer: int) -> "Mixture":
        """Batches from one set alone."""
        return Mixture((shards,), (batch_size,), seed, buffer)

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        """The order of each set's rows; the buffer is divided as the batch is."""
        counts, batch_size = self.rows_per_set, self.batch_size
        return tuple(
            Order(x.sizes, rows, self.seed, max(1, self.buffer * rows // batch_size), stream)
            for stream, (x, rows) in enumerate(zip(self.sets, counts, strict=True))
        )

    @property
    def batch_size(self) -> int:
        """Rows per step, over all ranks."""
        return sum(self.rows_per_set)

    @property
    def num_rows(self) -> int:
        """Rows of all sets."""
        return sum(x.num_rows for x in self.sets)

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max((x.longest for x in self.sets), default=0)

    @property
    def mean_length(self) -> int:
        """Mean tokens of a batch's rows, rounded up; 0 without sets."""
        means = (x.num_tokens / x.num_rows for x in self.sets)
        tokens = sum(mean * rows for mean, rows in zip(means, self.rows_per_set, strict=True))
        return math.ceil(tokens / max(1, self.batch_size))

    @property
    def horizon(self) -> int:
        """The largest horizon T of the sets."""
        return max((x.shared_value("horizon") for x in self.sets), default=0)

    @cached_property
    def first_ids(self) -> tuple[int, ...]:
        """Row id of the first row of each set: the ids of a set follow those of the set before."""
        sizes = [x.num_rows for x in self.sets]
        return tuple(itertools.accumulate(sizes[:-1], initial=0))

    def parts(self, rows: range) -> Iterator[LanePart]:
        """The lanes that contiguous rows of a batch come from, in the order of the batch."""
        first = 0
        for set_index, lane in self._lanes():
            share = self.orders[set_index].rows_per_lane
            start, stop = max(rows.start - first, 0), min(rows.stop - first, share)
            if start < stop:
                yield LanePart(set_index, lane, range(start, stop))
            first += share

    def names(self, row_ids: Ints) -> list[str]:
        """`shard:row (example)` of each row, for messages; with the URI if there are several."""
        owners = np.searchsorted(self.first_ids, row_ids, side="right") - 1
        names = []
        for row_id, owner in zip(row_ids.tolist(), owners.tolist(), strict=True):
            shards = self.sets[owner]
            (name,) = shards.names(np.array([row_id - self.first_ids[owner]]))
            names.append(name if len(self.sets) == 1 else f"{shards.uri} {name}")
        return names

    def first_step(self, set_index: int) -> int:
        """Step at which the order of a set begins."""
        return self.first_steps[set_index] if self.first_steps else 0

    def with_round(self, shards: ShardSet, rows: int, first_step: int) -> "Mixture":
        """These sets, whose orders begin at step 0, and a round's, whose order begins later."""
        return replace(
            self,
            sets=(*self.sets, shards),
            rows_per_set=(*self.rows_per_set, rows),
            first_steps=(*[0] * len(self.sets), first_step),
        )

    def reopened(self) -> "Mixture":
        """The same sets, opened once more for another thread."""
        sets = tuple(ShardSet(x.uri, x.split) for x in self.sets)
        return replace(self, sets=sets)

    def _lanes(self) -> list[tuple[int, int]]:
        """Set and lane of all lanes, by where the middle of each lies among those of its set."""
        lanes = [(i, lane) for i, x in enumerate(self.orders) for lane in range(x.num_lanes)]
        return sorted(lanes, key=lambda x: ((2 * x[1] + 1) / self.orders[x[0]].num_lanes, x[0]))


def check_same_vocabulary(sets: Sequence[ShardSet]) -> None:
    """Raise ValueError unless the tokens of all sets mean the same."""
    for shards in sets[1:]:
        first = sets[0]
        for name in ("vocab_size", "mask_id", "tokenizer"):
            values = [x.shared_value(name) for x in (first, shards)]
            if values[0] != values[1]:
                raise ValueError(
                    f"{first.uri} has {name} {values[0]}, {shards.uri} has {values[1]}; sets that "
                    "are trained on together need one vocabulary: build both with the same source"
                )
