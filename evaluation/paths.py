"""What happened to sequences while they were decoded: to predictions, and read back from them.

For sequences of one length with one right answer, MASK being 0 and ids small.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from models import Revision

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]


def path_columns(
    solution: Tensor, start: Tensor, revision: Revision, dtype: type = np.uint8
) -> dict[str, Any]:
    """Columns of a prediction table, a row per sequence; `solution` and `start` are [B, N]."""
    states = revision.trajectory.numpy().astype(dtype)  # [K+1, B, N]
    steps = revision.stats.steps.tolist()
    return {
        "solution": [x.tobytes() for x in solution.numpy().astype(dtype)],
        "start": [x.tobytes() for x in start.numpy().astype(dtype)],
        "states": [states[: n + 1, row].tobytes() for row, n in enumerate(steps)],
        "forward_passes": pa.array(revision.stats.forward_passes.tolist(), pa.int32()),
    }


@dataclass(frozen=True)
class Paths:
    """The predictions of a run as arrays."""

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

    @classmethod
    def read(cls, table: pa.Table, dtype: type = np.uint8) -> "Paths":
        solution, start = (stack(table[name], dtype) for name in ("solution", "start"))
        length = solution.shape[1]
        paths = [
            np.frombuffer(x.as_py(), dtype).reshape(-1, length) for x in table["states"]
        ]  # [steps+1, N] each
        steps = np.array([len(x) - 1 for x in paths])
        longest = int(steps.max(initial=0)) + 1
        states = [np.concatenate([x, np.repeat(x[-1:], longest - len(x), 0)]) for x in paths]
        return cls(
            table["sample_id"].to_pylist(),
            solution,
            start,
            np.stack(states, 1),
            steps,
            table["forward_passes"].to_numpy(),
        )

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
    """Byte strings of one length to an array, [B, N]."""
    return np.stack([np.frombuffer(x.as_py(), dtype) for x in column])
