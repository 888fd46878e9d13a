"""Trajectory rows on their way to the model: arrays as they are read, tensors as they are used."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.kernels import Segments
from remask.pipeline.moves import Bools, Ints


@dataclass(frozen=True)
class Batch:
    """Trajectory rows as tensors, padded to a common length N."""

    segments: Segments[Tensor]
    """Trajectories, int32."""
    editable: Tensor
    """Editable positions E, bool [B, N]."""
    is_token: Tensor
    """False at padding, bool [B, N]."""
    row_ids: Tensor
    """Index of each row in the data set, int64 [B]."""

    @property
    def target(self) -> Tensor:
        """Clean tokens x*, [B, N]."""
        return self.segments.target

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device, asynchronously from pinned memory."""
        return self._map(lambda x: x.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        """Copy to page-locked memory."""
        return self._map(lambda x: x.pin_memory())

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """Select rows, and cut the padding down to the longest of them."""
        width = int(self.is_token[rows].sum(1).max())
        segments = self.segments[rows]
        segments = Segments(segments.tokens[..., :width], segments.ends[..., :width], segments.step)
        editable, is_token = (x[rows, :width] for x in (self.editable, self.is_token))
        return Batch(segments, editable, is_token, self.row_ids[rows])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        editable, is_token, row_ids = map(function, (self.editable, self.is_token, self.row_ids))
        return Batch(self.segments.map(function), editable, is_token, row_ids)


@dataclass(frozen=True)
class RowArrays:
    """Trajectory rows as NumPy arrays, padded to a common length N."""

    segments: Segments[Ints]
    editable: Bools
    """[B, N]."""
    lengths: Ints
    """Tokens of each row, [B]."""
    row_ids: Ints
    """Index of each row in the data set, [B]."""

    def __getitem__(self, rows: slice | Ints) -> "RowArrays":
        is_slice = isinstance(rows, slice)
        editable = self.editable[rows] if is_slice else np.take(self.editable, rows, axis=0)
        return RowArrays(self.segments[rows], editable, self.lengths[rows], self.row_ids[rows])

    @staticmethod
    def concatenate(parts: "list[RowArrays]") -> "RowArrays":
        """The rows of all parts in order, padded to the longest row."""
        if len(parts) == 1:
            return parts[0]
        width = max(int(part.lengths.max(initial=0)) for part in parts)
        num_segments = max(part.segments.num_segments for part in parts)
        segments = [part.segments.widen(num_segments) for part in parts]
        return RowArrays(
            Segments(
                _concatenate([x.tokens for x in segments], width),
                _concatenate([x.ends for x in segments], width),
                np.concatenate([x.step for x in segments]),
            ),
            _concatenate([part.editable for part in parts], width),
            np.concatenate([part.lengths for part in parts]),
            np.concatenate([part.row_ids for part in parts]),
        )

    def to_batches(self, size: int) -> list[Batch]:
        """Cut into batches of `size` rows, each padded to its own longest row."""
        segments = self.segments.map(lambda x: torch.from_numpy(x.astype(np.int32)))
        width = self.editable.shape[1]
        tensors = (
            torch.from_numpy(np.ascontiguousarray(self.editable)),
            torch.from_numpy(np.arange(width) < self.lengths[:, None]),
            torch.from_numpy(self.row_ids.astype(np.int64)),
        )
        slices = [slice(first, first + size) for first in range(0, len(self.lengths), size)]
        batches = [Batch(segments[rows], *(x[rows] for x in tensors)) for rows in slices]
        if (self.lengths == width).all():
            return batches
        return [batch[:] for batch in batches]


def _concatenate(grids: list[NDArray], width: int) -> NDArray:
    """Concatenate grids [..., B, N] along B, each cut or padded with 0 to N = `width`."""
    num_rows = sum(grid.shape[-2] for grid in grids)
    # Shards of a larger horizon store their steps in a wider type.
    out = np.zeros((*grids[0].shape[:-2], num_rows, width), np.result_type(*grids))
    first = 0
    for grid in grids:
        kept = grid[..., :width]
        out[..., first : first + grid.shape[-2], : kept.shape[-1]] = kept
        first += grid.shape[-2]
    return out
