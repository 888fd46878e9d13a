"""Every state of decoded sequences, as columns of predictions and as arrays.

For sequences with one right answer and small token ids; MASK is 0.
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
        solution: The right answer of each sequence, [B, N], or B tensors [n].
        start: Each sequence as given, in the same form.
        revision: The decode; for a sequence shorter than N, the first n positions count.
        dtype: Type of the token ids.
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
    """The predictions of a run as arrays. Shorter sequences are padded with positions that are
    right from the start and stay right."""

    sample_ids: list[str]
    solution: Ints
    """[B, N]."""
    start: Ints
    """The sequences as given, [B, N]; the first state may have some of them masked."""
    states: Ints
    """[K+1, B, N]; a finished sequence repeats its last state."""
    steps: Ints
    """Number of steps of each sequence, [B]."""
    forward_passes: Ints
    lengths: Ints
    """Length of each sequence without its padding, [B]."""

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
    def is_own(self) -> Bools:
        """Whether each position belongs to its sequence and is not padding, [B, N]."""
        return within(self.lengths, self.solution.shape[1])

    @property
    def final(self) -> Ints:
        return self.states[-1]

    def exact(self, state: Ints) -> Bools:
        """Whether each sequence of a state [B, N] equals its solution, [B]."""
        return (state == self.solution).all(-1)

    def remasks(self) -> Bools:
        """Whether each position became MASK in each step, [K, B, N]."""
        return (self.states[1:] == 0) & (self.states[:-1] != 0)

    def reveals(self) -> Bools:
        """Whether each position became a token in each step, [K, B, N]."""
        return (self.states[1:] != 0) & (self.states[:-1] == 0)

    def first_written(self) -> Ints:
        """The first token that each position showed, [B, N]; MASK if it never showed one."""
        first = self.states[0].copy()
        for state in self.states[1:]:
            first = np.where(first == 0, state, first)
        return first


def replays(paths: Paths) -> tuple[Bools, Bools]:
    """Positions that were re-masked while wrong, and those among them that were later revealed as
    a token rejected before; [B, N] each."""
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
    """Byte strings as one array, [B, N]; shorter ones are padded with 0."""
    return pad(arrays(column, dtype), np.dtype(dtype))[0]


def arrays(column: pa.ChunkedArray, dtype: type) -> list[NDArray]:
    """Byte strings as arrays, [n] each."""
    return [np.frombuffer(x.as_py(), dtype) for x in column]
