"""What happened to sequences while they were decoded: to predictions, and read back from them.

For sequences with one right answer, MASK being 0 and ids small.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from remask.models import Revision
from remask.pipeline.format.examples import pad
from remask.pipeline.format.packing import within

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]


def path_columns(
    solution: Tensor | Sequence[Tensor],
    start: Tensor | Sequence[Tensor],
    revision: Revision,
    dtype: type = np.uint8,
) -> dict[str, Any]:
    """Columns of a prediction table, a row per sequence.

    Args:
        solution: What each should become, [B, N] or B of [n].
        start: What each was given as, likewise.
        revision: Of those that are shorter than N, the first n positions count.
        dtype: Of ids.
    """
    states = revision.trajectory.numpy().astype(dtype)  # [K+1, B, N]
    ends = zip(revision.stats.steps.tolist(), map(len, solution), strict=True)
    return {
        "solution": [x.numpy().astype(dtype).tobytes() for x in solution],
        "start": [x.numpy().astype(dtype).tobytes() for x in start],
        "states": [states[: k + 1, row, :n].tobytes() for row, (k, n) in enumerate(ends)],
        "forward_passes": pa.array(revision.stats.forward_passes.tolist(), pa.int32()),
    }


@dataclass(frozen=True)
class Paths:
    """The predictions of a run as arrays. Shorter sequences are filled up with positions that are
    right from the start and stay so."""

    sample_ids: list[str]
    solution: Ints
    """[B, N]."""
    start: Ints
    """As given, [B, N]; a decoder that was told the wrong cells began with them masked."""
    states: Ints
    """[K+1, B, N]; a finished sequence repeats its last."""
    steps: Ints
    """Of each sequence, [B]."""
    forward_passes: Ints
    lengths: Ints
    """Of each sequence, without what it is filled up with, [B]."""

    @classmethod
    def read(cls, table: pa.Table, dtype: type = np.uint8) -> "Paths":
        solution, lengths = pad(arrays(table["solution"], dtype), np.dtype(dtype), 1)
        start, _ = pad(arrays(table["start"], dtype), np.dtype(dtype), 1)
        paths = [
            x.reshape(-1, n) for x, n in zip(arrays(table["states"], dtype), lengths, strict=True)
        ]  # [steps+1, n] each
        steps = np.array([len(x) - 1 for x in paths])
        states = np.ones((steps.max(initial=0) + 1, *solution.shape), dtype)
        for row, path in enumerate(paths):
            states[: len(path), row, : path.shape[1]] = path
            states[len(path) :, row, : path.shape[1]] = path[-1]
        return cls(
            table["sample_id"].to_pylist(),
            solution,
            start,
            states,
            steps,
            table["forward_passes"].to_numpy(),
            lengths,
        )

    @property
    def is_there(self) -> Bools:
        """Positions that a sequence has of its own, [B, N]."""
        return within(self.lengths, self.solution.shape[1])

    @property
    def final(self) -> Ints:
        return self.states[-1]

    def exact(self, state: Ints) -> Bools:
        return (state == self.solution).all(-1)

    def remasks(self) -> Bools:
        """Positions that became MASK, by step, [K, B, N]."""
        return (self.states[1:] == 0) & (self.states[:-1] != 0)

    def reveals(self) -> Bools:
        return (self.states[1:] != 0) & (self.states[:-1] == 0)


def replays(paths: Paths) -> tuple[Bools, Bools]:
    """Positions re-masked while wrong, and those later revealed as a token so rejected; [B, N]."""
    rejected = np.zeros((*paths.solution.shape, int(paths.states.max(initial=0)) + 1), bool)
    replayed = np.zeros(paths.solution.shape, np.bool_)
    steps = zip(paths.states, paths.states[1:], paths.remasks(), paths.reveals(), strict=False)
    for before, after, remask, reveal in steps:
        was_rejected = np.take_along_axis(rejected, after[..., None].astype(int), -1)[..., 0]
        replayed[reveal & was_rejected] = True
        row, cell = np.nonzero(remask & (before != paths.solution))
        rejected[row, cell, before[row, cell]] = True
    return np.any(rejected, -1), replayed


def stack(column: pa.ChunkedArray, dtype: type) -> NDArray:
    """Byte strings to an array, [B, N], the shorter ones filled up with 0."""
    return pad(arrays(column, dtype), np.dtype(dtype))[0]


def arrays(column: pa.ChunkedArray, dtype: type) -> list[NDArray]:
    """Byte strings to arrays, [n] each."""
    return [np.frombuffer(x.as_py(), dtype) for x in column]
