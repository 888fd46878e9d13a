"""`Moves`: the trajectories of a batch without the positions that stand still.

Most positions of a row keep their target throughout. The sampler draws, and a shard stores, the
segments of the others alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remask.kernels import Segments
from remask.pipeline.rules import KEEP, count_rules, count_wrong

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Moves:
    """The P positions of a batch that move, and the segments of each before its target's."""

    at: Ints
    """Positions as indices into the flattened batch, ascending, [P]."""
    count: Ints
    """How many of them each row has, [B]."""
    tokens: Ints
    """What each segment but the last shows, [S-1, P], S >= 2; the target where it is empty."""
    ends: Ints
    """Step at which each of those segments ends, [S-1, P]; 0 for leading empty segments."""
    step: Ints
    """Current step of each row, [B]."""

    @staticmethod
    def of(segments: Segments[Ints]) -> "Moves":
        """The positions of some trajectories that move."""
        segments = segments.widen(max(2, segments.num_segments))
        is_moving = segments.moves
        at = np.flatnonzero(is_moving)
        size = segments.num_segments - 1
        tokens, ends = (
            x[:size].reshape(size, is_moving.size)[:, at] for x in (segments.tokens, segments.ends)
        )
        return Moves(at, np.count_nonzero(is_moving, axis=1), tokens, ends, segments.step)

    def over(self, target: Ints) -> Segments[Ints]:
        """The trajectories of all positions, given their targets, [B, N]."""
        size = len(self.ends)
        tokens = np.empty((size + 1, *target.shape), target.dtype)
        tokens[:] = target
        ends = np.zeros((size, *target.shape), self.ends.dtype)
        for plane in range(size):
            tokens[plane].ravel()[self.at] = self.tokens[plane]
            ends[plane].ravel()[self.at] = self.ends[plane]
        return Segments(tokens, ends, self.step)

    def rule_counts(self, target: Ints, editable: Bools, mask_id: int) -> dict[str, int]:
        """How many editable positions follow each rule; target and editable are [B, N]."""
        counts = count_rules(self.tokens, self.ends, target.ravel()[self.at], mask_id)
        return {KEEP: int(np.count_nonzero(editable)) - self.at.size, **counts}

    def num_wrong(self, target: Ints, mask_id: int) -> int:
        """Segments that show a wrong token."""
        return count_wrong(self.tokens, self.ends, target.ravel()[self.at], mask_id)
