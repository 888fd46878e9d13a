"""Shards to batches: streamed, resumable at a row, the same rows for any number of ranks.

`order.py` says which row of a shard set comes when, `mixture.py` where in a batch it stands. A rank
owns a contiguous part of each batch, and so reads only the lanes that this part comes from.
"""

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from remask.pipeline.format.rows import TrajectoryFile
from remask.training.batch import Batch, RowArrays
from remask.training.mixture import LanePart, Mixture

ROWS_PER_CHUNK = 1024
"""Rows that a rank assembles at once: as many steps as they fill, at least one."""


class Loader:
    """One rank's part of every batch, in micro-batches."""

    def __init__(
        self,
        mixture: Mixture,
        *,
        rank: int = 0,
        world_size: int = 1,
        micro_batches: int = 1,
    ) -> None:
        """Read no shard yet.

        Raises:
            ValueError: The batch does not divide into ranks and micro-batches, or there are fewer
                rows than ranks.
        """
        rows, remainder = divmod(mixture.batch_size, world_size)
        if remainder or rows % micro_batches:
            raise ValueError(
                f"batch_size {mixture.batch_size} must be a multiple of ranks × micro-batches "
                f"({world_size} × {micro_batches})"
            )
        if mixture.num_rows < world_size:
            raise ValueError(
                f"{' + '.join(x.uri for x in mixture.sets)} has {mixture.num_rows} rows for "
                f"{world_size} ranks; use fewer ranks"
            )
        self._rows, self._micro_rows = rows, rows // micro_batches
        parts = list(mixture.parts(range(rank * rows, (rank + 1) * rows)))
        self._lanes = [_Lane(mixture, part) for part in parts]
        for set_index, num_lanes in Counter(part.set_index for part in parts).items():
            mixture.sets[set_index].set_cache_size(num_lanes + 1)

    def batches(self, first_step: int = 0, stop: int | None = None) -> Iterator[list[Batch]]:
        """The micro-batches of each step before `stop`. Defaults to no end."""
        for chunk in self.chunks(first_step, stop):
            yield from chunk

    def chunks(self, first_step: int = 0, stop: int | None = None) -> Iterator[list[list[Batch]]]:
        """The same as `batches`, with the steps that are assembled at once in one list."""
        num_steps = max(1, ROWS_PER_CHUNK // self._rows)
        for step in itertools.count(first_step, num_steps):
            steps = range(step, step + num_steps if stop is None else min(step + num_steps, stop))
            if not steps:
                return
            micro_batches = self._read_steps(steps).to_batches(self._micro_rows)
            per_step = len(micro_batches) // len(steps)
            yield [micro_batches[i : i + per_step] for i in range(0, len(micro_batches), per_step)]

    def _read_steps(self, steps: range) -> RowArrays:
        """This rank's rows of several steps, in order of the steps."""
        parts, columns, num_read = [], [], 0
        for lane in self._lanes:
            part = lane.take(steps)
            num_rows = len(part.lengths)
            parts.append(part)
            columns.append(num_read + np.arange(num_rows).reshape(len(steps), -1))
            num_read += num_rows
        by_step = np.concatenate(columns, axis=1).reshape(-1)
        return RowArrays.concatenate(parts)[by_step]


class _Lane:
    """One lane's rows in the order they are served; keeps the current block in memory."""

    def __init__(self, mixture: Mixture, part: LanePart) -> None:
        """Serve a part of the lane's share of every batch."""
        self._shards, self._order = mixture.sets[part.set_index], mixture.orders[part.set_index]
        self._first_id, self._lane, self._part = mixture.first_ids[part.set_index], part.lane, part
        self._first_step = mixture.first_step(part.set_index)
        self._block = range(0)
        self._rows: RowArrays | None = None
        self._shard = -1
        self._file: TrajectoryFile | None = None

    def take(self, steps: range) -> RowArrays:
        """The part's rows of several steps, in order of the steps."""
        share, rows = self._order.rows_per_lane, self._part.rows
        first, stop = (x - self._first_step for x in (steps.start, steps.stop))
        served = self._serve(range(first * share, stop * share))
        if len(rows) == share:
            return served
        firsts = np.arange(len(steps))[:, None] * share  # [steps, 1]
        return served[(firsts + np.arange(rows.start, rows.stop)).reshape(-1)]

    def _serve(self, positions: range) -> RowArrays:
        """The rows at consecutive positions."""
        parts, at = [], positions.start
        while at < positions.stop:
            if self._rows is None or at not in self._block:
                self._block = self._order.block(self._lane, at)
                self._rows = self._read(self._block)
            stop = min(positions.stop, self._block.stop)
            parts.append(self._rows[at - self._block.start : stop - self._block.start])
            at = stop
        return RowArrays.concatenate(parts)

    def _read(self, block: range) -> RowArrays:
        pieces = self._order.pieces(self._lane, block)
        rows = RowArrays.concatenate([self._read_piece(*piece) for piece in pieces])
        return rows[self._order.shuffle(self._lane, block, rows.lengths)]

    def _read_piece(self, shard: int, rows: range) -> RowArrays:
        if self._file is None or shard != self._shard:
            self._shard, self._file = shard, self._shards.open(shard)
        trajectories = self._file.read(rows)
        examples = trajectories.examples
        row_ids = self._first_id + self._shards.row_ids(shard, rows)
        return RowArrays(trajectories.segments, examples.editable, examples.lengths, row_ids)
