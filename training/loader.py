"""Shards to batches: streamed, shuffled, resumable at a row, the same rows for any number of ranks.

The order of an epoch follows from (seed, epoch): shards are shuffled and laid end to end, and the
line is cut into lanes of equal length. Each lane shuffles its rows within a buffer, and every batch
takes the same number of rows from every lane. A rank owns a part of each batch and so reads only
the lanes that part comes from. Nothing depends on how many ranks there are, so a run may go on with
more or fewer of them, and where it stands is one number: batches done.

Within a buffer rows are grouped by length, and the lanes take groups of like length at the same
time, so that padding is small on every rank.
"""

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.kernels import Segments
from remask.pipeline.moves import Bools, Ints
from remask.training.shard_set import ShardSet

MOST_LANES = 8
ROWS_AT_ONCE = 1024
"""Of a rank, put together in one go: as many steps as they make."""
CHUNKS_AHEAD = 2
"""How many times as much is made ahead of what is in use."""
_SHARDS, _ROWS, _GROUPS = range(3)  # what is being shuffled


@dataclass(frozen=True)
class Batch:
    """Trajectory rows as tensors."""

    segments: Segments[Tensor]
    """Int32."""
    editable: Tensor
    """Bool, [B, N]."""
    is_token: Tensor
    """Bool, [B, N]; false at padding."""
    row_ids: Tensor
    """Number of each row in the data set, int64 [B]."""

    @property
    def target(self) -> Tensor:
        """Clean tokens x*, [B, N]."""
        return self.segments.target

    def to(self, device: torch.device) -> "Batch":
        return self._map(lambda x: x.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        return self._map(lambda x: x.pin_memory())

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """Some rows, padded to the longest of them."""
        width = int(self.is_token[rows].sum(1).max())
        segments = self.segments[rows]
        segments = Segments(segments.tokens[..., :width], segments.ends[..., :width], segments.step)
        editable, is_token = (x[rows, :width] for x in (self.editable, self.is_token))
        return Batch(segments, editable, is_token, self.row_ids[rows])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        editable, is_token, row_ids = map(function, (self.editable, self.is_token, self.row_ids))
        return Batch(self.segments.map(function), editable, is_token, row_ids)


@dataclass(frozen=True)
class Order:
    """Which row comes when, as a function of the seed and the epoch; knows no ranks.

    A lane is an endless line of positions: its stretch of epoch 0, then of epoch 1, and so on.
    """

    sizes: Ints
    """Rows of each shard, [S]."""
    batch_size: int
    """Rows of a step over all ranks."""
    seed: int
    buffer: int
    """Rows that are shuffled together, over all lanes."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "buffer"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @cached_property
    def num_rows(self) -> int:
        return int(self.sizes.sum())

    @cached_property
    def num_lanes(self) -> int:
        """The most that divide a batch and leave each a row."""
        most = min(MOST_LANES, self.num_rows)
        return max(n for n in range(1, most + 1) if self.batch_size % n == 0)

    @property
    def rows_per_lane(self) -> int:
        """Rows a batch takes from each lane."""
        return self.batch_size // self.num_lanes

    def epoch(self, lane: int, position: int) -> int:
        """The epoch that a lane is in."""
        return (self.num_lanes * (position + 1) - 1 - lane) // self.num_rows

    def stretch(self, lane: int, epoch: int) -> range:
        """A lane's positions of an epoch. Lanes never differ by more than a row in all they hold,
        so whole epochs are done when their rows are."""
        first, last = ((self.num_rows * e + lane) // self.num_lanes for e in (epoch, epoch + 1))
        return range(first, last)

    def block(self, lane: int, position: int) -> range:
        """The positions of a lane that are shuffled together with this one: of one epoch."""
        stretch = self.stretch(lane, self.epoch(lane, position))
        whole = max(1, self.buffer // self.batch_size) * self.rows_per_lane
        first = position // whole * whole
        return range(max(first, stretch.start), min(first + whole, stretch.stop))

    def pieces(self, lane: int, block: range) -> Iterator[tuple[int, range]]:
        """The shards, and the rows of each, that a block lies in."""
        epoch = self.epoch(lane, block.start)
        order, starts = self._line(epoch)
        before = sum(len(self.stretch(other, epoch)) for other in range(lane))
        at = before + block.start - self.stretch(lane, epoch).start
        stop = at + len(block)
        while at < stop:
            i = int(np.searchsorted(starts, at, side="right")) - 1
            end = min(stop, int(starts[i + 1]))
            yield int(order[i]), range(at - int(starts[i]), end - int(starts[i]))
            at = end

    def shuffle(self, lane: int, block: range, lengths: Ints) -> Ints:
        """The order in which a block's rows are served, by their lengths.

        A batch's rows are of like length, and which length comes next is the same for all lanes.
        Rows of one length come in any order, lane by lane.
        """
        epoch = self.epoch(lane, block.start)
        chance = self._rng(_ROWS, epoch, lane, block.start).permutation(len(block))
        by_length = chance[np.argsort(lengths[chance], kind="stable")]
        size = self.rows_per_lane
        head = min(-block.start % size, len(block))  # the rest of a batch begun before
        groups = (len(block) - head) // size
        turn = self._rng(_GROUPS, epoch, block.start // size).permutation(groups)
        body = by_length[: groups * size].reshape(groups, size)[turn].reshape(-1)
        rest = by_length[groups * size :]
        return np.concatenate([rest[:head], body, rest[head:]])

    def _line(self, epoch: int) -> tuple[Ints, Ints]:
        """The epoch's shards in order, [S], and where each begins in the line, [S + 1]."""
        order = self._rng(_SHARDS, epoch).permutation(len(self.sizes))
        return order, np.concatenate([[0], np.cumsum(self.sizes[order])])

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *key])


class Loader:
    """The part of every batch that one rank gets, in micro-batches."""

    def __init__(
        self,
        shards: ShardSet,
        order: Order,
        *,
        rank: int = 0,
        world_size: int = 1,
        micro_batches: int = 1,
    ) -> None:
        rows, left = divmod(order.batch_size, world_size)
        if left or rows % micro_batches:
            raise ValueError(
                f"batch_size {order.batch_size} must be a multiple of ranks × micro-batches "
                f"({world_size} × {micro_batches})"
            )
        if order.num_rows < world_size:
            raise ValueError(
                f"{shards.uri} has {order.num_rows} rows for {world_size} ranks; use fewer ranks"
            )
        self._rows_per_lane = order.rows_per_lane
        self._rows, self._micro_rows = rows, rows // micro_batches
        mine = range(rank * rows, (rank + 1) * rows)
        self._parts = list(_by_lane(mine, order.rows_per_lane))
        self._lanes = {lane: _Lane(shards, order, lane) for lane, _ in self._parts}
        shards.keep(len(self._lanes) + 1)

    def batches(self, first_step: int = 0) -> Iterator[list[Batch]]:
        """The micro-batches of one step after another, without end."""
        for chunk in self.chunks(first_step):
            yield from chunk

    def chunks(self, first_step: int = 0) -> Iterator[list[list[Batch]]]:
        """The same, some steps at a time."""
        count = max(1, ROWS_AT_ONCE // self._rows)
        for step in itertools.count(first_step, count):
            micro = self._steps(range(step, step + count)).to_batches(self._micro_rows)
            each = len(micro) // count
            yield [micro[i : i + each] for i in range(0, len(micro), each)]

    def _steps(self, steps: range) -> "_Rows":
        """This rank's rows of some steps, one step's after another's."""
        share = self._rows_per_lane
        parts, places, before = [], [], 0
        for lane, rows in self._parts:
            found = self._lanes[lane].take(range(steps.start * share, steps.stop * share))
            mine = np.arange(len(steps))[:, None] * share + np.arange(rows.start, rows.stop)
            parts.append(found if len(rows) == share else found[mine.reshape(-1)])
            places.append(before + np.arange(mine.size).reshape(mine.shape))
            before += mine.size
        order = np.concatenate(places, axis=1).reshape(-1)
        return _Rows.join(parts)[order]


@dataclass(frozen=True)
class _Rows:
    """Rows as arrays: trajectories, E [B, N], lengths and numbers [B]."""

    segments: Segments[Ints]
    editable: Bools
    lengths: Ints
    row_ids: Ints

    def __getitem__(self, rows: slice | Ints) -> "_Rows":
        return _Rows(*(x[rows] for x in vars(self).values()))

    @staticmethod
    def join(parts: "list[_Rows]") -> "_Rows":
        """Some rows after others, padded to the longest of them."""
        if len(parts) == 1:
            return parts[0]
        width = max(int(part.lengths.max(initial=0)) for part in parts)
        size = max(part.segments.num_segments for part in parts)
        segments = [part.segments.widen(size) for part in parts]
        return _Rows(
            Segments(
                _join([x.tokens for x in segments], width),
                _join([x.ends for x in segments], width),
                np.concatenate([x.step for x in segments]),
            ),
            _join([part.editable for part in parts], width),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.row_ids for part in parts]),
        )

    def to_batches(self, size: int) -> list[Batch]:
        """Batches of so many rows, each padded to its own longest."""
        segments = self.segments.map(lambda x: torch.from_numpy(x.astype(np.int32)))
        width = self.editable.shape[1]
        tensors = (
            torch.from_numpy(np.ascontiguousarray(self.editable)),
            torch.from_numpy(np.arange(width) < self.lengths[:, None]),
            torch.from_numpy(self.row_ids.astype(np.int64)),
        )
        parts = [slice(first, first + size) for first in range(0, len(self.lengths), size)]
        batches = [Batch(segments[rows], *(x[rows] for x in tensors)) for rows in parts]
        if (self.lengths == width).all():
            return batches
        return [batch[:] for batch in batches]


class _Lane:
    """One lane's rows in the order they are served; holds the block in use."""

    def __init__(self, shards: ShardSet, order: Order, lane: int) -> None:
        self._shards, self._order, self._lane = shards, order, lane
        self._block, self._rows = range(0), None
        self._shard, self._file = -1, None

    def take(self, positions: range) -> _Rows:
        """The rows at some positions."""
        parts, at = [], positions.start
        while at < positions.stop:
            if self._rows is None or at not in self._block:
                self._block = self._order.block(self._lane, at)
                self._rows = self._read(self._block)
            stop = min(positions.stop, self._block.stop)
            parts.append(self._rows[at - self._block.start : stop - self._block.start])
            at = stop
        return _Rows.join(parts)

    def _read(self, block: range) -> _Rows:
        pieces = self._order.pieces(self._lane, block)
        rows = _Rows.join([self._piece(*piece) for piece in pieces])
        return rows[self._order.shuffle(self._lane, block, rows.lengths)]

    def _piece(self, shard: int, rows: range) -> _Rows:
        if self._file is None or shard != self._shard:
            self._shard, self._file = shard, self._shards.open(shard)
        read = self._file.read(rows)
        return _Rows(
            read.segments,
            read.examples.editable,
            read.examples.lengths,
            self._shards.row_ids(shard, rows),
        )


class Prefetched:
    """A loader's steps, made ahead by a thread; close it, or use it as a context."""

    def __init__(self, loader: Loader, first_step: int = 0, *, pin: bool = False) -> None:
        self._chunks, self._pin = loader.chunks(first_step), pin
        self._queue: queue.Queue[Any] = queue.Queue(CHUNKS_AHEAD)
        self._ready: deque[list[Batch]] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="loader")
        self._thread.start()

    def __enter__(self) -> "Prefetched":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> list[Batch]:
        if not self._ready:
            chunk = self._queue.get()
            if isinstance(chunk, BaseException):
                raise chunk
            self._ready.extend(chunk)
        return self._ready.popleft()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for chunk in self._chunks:
                if self._pin:
                    chunk = [[batch.pin() for batch in step] for step in chunk]
                if not self._put(chunk):
                    return
        except Exception as error:
            self._put(error)

    def _put(self, item: Any) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def _by_lane(rows: range, rows_per_lane: int) -> Iterator[tuple[int, range]]:
    """The lanes that some rows of a batch come from, and which of each lane's rows."""
    at = rows.start
    while at < rows.stop:
        lane = at // rows_per_lane
        begin = lane * rows_per_lane
        stop = min(rows.stop, begin + rows_per_lane)
        yield lane, range(at - begin, stop - begin)
        at = stop


def _join(grids: list[NDArray], width: int) -> NDArray:
    """Grids [..., B, N] one after another along B, with N = width; 0 at padding."""
    num_rows = sum(grid.shape[-2] for grid in grids)
    out = np.zeros((*grids[0].shape[:-2], num_rows, width), grids[0].dtype)
    first = 0
    for grid in grids:
        kept = grid[..., :width]
        out[..., first : first + grid.shape[-2], : kept.shape[-1]] = kept
        first += grid.shape[-2]
    return out
