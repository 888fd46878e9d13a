"""`Segments`: trajectories as a run-length code.

A position shows few different tokens on its way to the target, however many steps it takes. The
code lists those tokens and the steps at which each gives way to the next:

    states     7 7 7 M M 4 4      tokens  7 M 4
    step k     0 1 2 3 4 5 6      ends     3 5

The arrays are NumPy's or torch's: a result is of its input's kind, on its input's device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = TypeVar("Array", bound=Any)
"""A NumPy array or a torch tensor."""


@dataclass(frozen=True, eq=False)
class Segments(Generic[Array]):
    """Trajectories of a batch: per position S tokens and the S - 1 steps that separate them.

    Segment s shows while ends[s-1] <= k < ends[s]. The first segment starts at step 0, the last one
    never ends. Paths are right-aligned: a path of fewer than S segments has leading segments that
    end at step 0. Those are empty, and their token is the target.
    """

    tokens: Array
    """Tokens, [S, B, N], S >= 1. The last ones are the target x*. MASK is a token like others."""
    ends: Array
    """Step at which each segment but the last ends, [S-1, B, N], non-decreasing along S."""
    step: Array
    """Current step t of each row, [B]."""

    def __post_init__(self) -> None:
        check_shapes(self.tokens, self.ends, self.step)

    @classmethod
    def from_states(
        cls,
        states: Array,
        *,
        target: Array,
        step: Array | None = None,
        lengths: Array | None = None,
        max_segments: int | None = None,
    ) -> "tuple[Segments[Array], Array]":
        """Encode recorded trajectories.

        Where the last recorded state is not the target, the target's segment starts right after it.

        Args:
            states: Tokens at steps 0 .. K-1, [K, B, N], integer.
            target: Clean tokens x*, [B, N].
            step: Current step of each row, [B]; defaults to the last recorded step.
            lengths: Number of recorded states of each row, [B], 0 .. K; later ones are ignored.
                Defaults to K for all rows.
            max_segments: Limit on S, at least 1. Of a longer path the oldest runs are dropped, and
                the oldest one kept extends back to step 0. Defaults to no limit.

        Returns:
            The code, with S no larger than its longest path needs, and the number of runs dropped
            from each row, [B].
        """
        xp = _namespace(states)
        _check_recording(states, target, lengths, max_segments)
        num_states = xp.asarray([len(states)] * len(target), device=states.device)  # [B]
        if lengths is not None:
            num_states = lengths
            clock = xp.arange(len(states), device=states.device)[:, None]  # [K, 1]
            states = xp.where((clock < lengths)[..., None], states, target)
        path = xp.concatenate([states, target[None]])  # [K+1, B, N]
        begins = xp.ones_like(path, dtype=xp.bool)  # true at the first step of each run
        begins[1:] = path[1:] != path[:-1]
        run = xp.cumsum(begins, 0)
        num_runs = run[-1]  # [B, N]
        size = int(num_runs.max()) if 0 not in target.shape else 1
        size = size if max_segments is None else min(size, max_segments)
        segment = run - num_runs + (size - 1)  # negative for runs that are dropped

        k, b, n = xp.where(begins & (segment >= 0))
        s = segment[k, b, n]
        tokens = xp.stack([path[-1]] * size)
        starts = xp.zeros_like(tokens, dtype=xp.int32)
        tokens[s, b, n] = path[k, b, n]
        starts[s, b, n] = xp.asarray(k, dtype=xp.int32)
        if step is None:
            step = xp.clip(num_states, 1, None) - 1  # in this order for unsigned lengths
        num_dropped = xp.clip(num_runs - size, 0, None).sum(1)
        return cls(tokens, starts[1:], xp.asarray(step, dtype=xp.int32)), num_dropped

    @property
    def num_segments(self) -> int:
        """S, empty segments included."""
        return len(self.tokens)

    @property
    def target(self) -> Array:
        """Clean tokens x*, [B, N]."""
        return self.tokens[-1]

    @property
    def moves(self) -> Array:
        """Does the position ever show another segment than its last? Bool, [B, N]."""
        if self.num_segments > 1:
            return self.ends[-1] > 0
        xp = _namespace(self.tokens)
        return xp.zeros_like(self.target, dtype=xp.bool)

    def state_at(self, step: Array | int) -> Array:
        """Tokens at one step for all rows, or at step [B]; [B, N]."""
        return state_at(self.tokens, self.ends, step)

    def states(self, last: int | None = None) -> Array:
        """Tokens at steps 0 .. `last`, which defaults to the largest current step; [K, B, N]."""
        if last is None:
            last = int(self.step.max())
        return _namespace(self.tokens).stack([self.state_at(k) for k in range(last + 1)])

    def last_rejected(self, mask_id: int) -> Array:
        """The token that each position gave up last, [B, N]; the target where there is none.

        It is the token of the latest segment that ended by the current step and showed neither MASK
        nor the target.
        """
        xp = _namespace(self.tokens)
        rejected, start = self.target, 0
        for token, end in zip(self.tokens[:-1], self.ends, strict=True):
            is_rejected = (start < end) & (end <= self.step[:, None])
            is_rejected = is_rejected & (token != mask_id) & (token != self.target)
            rejected, start = xp.where(is_rejected, token, rejected), end
        return rejected

    def widen(self, num_segments: int) -> "Segments[Array]":
        """The same trajectories with leading empty segments added, up to `num_segments`."""
        added = num_segments - self.num_segments
        if added < 0:
            raise ValueError(
                f"num_segments must be at least the {self.num_segments} there are, got "
                f"{num_segments}"
            )
        if added == 0:
            return self
        xp = _namespace(self.tokens)
        empty = xp.zeros_like(self.target, dtype=self.ends.dtype)
        return Segments(
            xp.concatenate([xp.stack([self.target] * added), self.tokens]),
            xp.concatenate([xp.stack([empty] * added), self.ends]),
            self.step,
        )

    def trim(self) -> "Segments[Array]":
        """The same trajectories without the leading segments that are empty at every position."""
        empty = 0
        while empty < len(self.ends) and not (self.ends[empty] > 0).any():
            empty += 1
        return Segments(self.tokens[empty:], self.ends[empty:], self.step)

    def map(self, function: Callable[[Any], Any]) -> "Segments[Any]":
        """The segments with each array replaced by the function's result: moved or converted."""
        return Segments(function(self.tokens), function(self.ends), function(self.step))

    def __getitem__(self, rows: Any) -> "Segments[Array]":
        """Some rows of the batch, by slice, index array or bool [B]."""
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "iu":  # four times as fast
            tokens, ends = (np.take(x, rows, axis=1) for x in (self.tokens, self.ends))
            return Segments(tokens, ends, self.step[rows])
        return Segments(self.tokens[:, rows], self.ends[:, rows], self.step[rows])

    def check(self, *, vocab_size: int, horizon: int) -> None:
        """Raise ValueError at the first value that no trajectory has, naming its place.

        Args:
            vocab_size: V; tokens lie in 0 .. V-1.
            horizon: T; ends and steps lie in 0 .. T.
        """
        tokens, ends, step = self.tokens, self.ends, self.step
        xp = _namespace(tokens)
        previous = xp.concatenate([xp.zeros_like(ends[:1]), ends[:-1]])
        faults = (
            (
                f"tokens must be ids in 0 .. {vocab_size - 1}",
                tokens,
                (tokens < 0) | (tokens >= vocab_size),
            ),
            (f"ends must lie in 0 .. horizon {horizon}", ends, (ends < 0) | (ends > horizon)),
            ("ends must not decrease from one segment to the next", ends, ends < previous),
            (f"step must lie in 0 .. horizon {horizon}", step, (step < 0) | (step > horizon)),
        )
        for message, values, is_fault in faults:
            if is_fault.any():
                place = [int(index[0]) for index in xp.where(is_fault)]
                raise ValueError(f"{message}, got {int(values[tuple(place)])} at {place}")


def state_at(tokens: Array, ends: Array, step: Array | int) -> Array:
    """Tokens that segments show at a step.

    Args:
        tokens: [S, B, N], of any integer type.
        ends: [S-1, B, N], of any integer type.
        step: One step for all rows, or [B].

    Returns:
        [B, N], in the type of `tokens`.
    """
    xp = _namespace(tokens)
    k = step if isinstance(step, int) else step[:, None]
    state = tokens[0]
    for token, start in zip(tokens[1:], ends, strict=True):
        state = xp.where(start <= k, token, state)
    return state


def check_shapes(tokens: Array, ends: Array, step: Array) -> None:
    """Raise ValueError unless these are tokens [S, B, N], ends [S-1, B, N] and step [B]."""
    if tokens.ndim != 3 or len(tokens) == 0:
        raise ValueError(f"tokens must be [S, B, N] with S >= 1, got {list(tokens.shape)}")
    size, batch, positions = tokens.shape
    if tuple(ends.shape) != (size - 1, batch, positions):
        raise ValueError(
            f"ends must be [S-1, B, N] = {[size - 1, batch, positions]}, got {list(ends.shape)}"
        )
    if tuple(step.shape) != (batch,):
        raise ValueError(f"step must be [B] = [{batch}], got {list(step.shape)}")


def _check_recording(
    states: Any, target: Any, lengths: Any | None, max_segments: int | None
) -> None:
    if states.ndim != 3 or target.shape != states.shape[1:]:
        raise ValueError(
            f"states must be [K, B, N] and target [B, N], got {list(states.shape)} and "
            f"{list(target.shape)}"
        )
    if max_segments is not None and max_segments < 1:
        raise ValueError(f"max_segments must be at least 1, got {max_segments}")
    if lengths is None:
        return
    num_states, batch = states.shape[:2]
    if tuple(lengths.shape) != (batch,):
        raise ValueError(f"lengths must be [B] = [{batch}], got {list(lengths.shape)}")
    is_fault = (lengths < 0) | (lengths > num_states)
    if is_fault.any():
        row = int(_namespace(lengths).where(is_fault)[0][0])
        raise ValueError(
            f"lengths must lie in 0 .. K = {num_states}, got {int(lengths[row])} at [{row}]"
        )


def _namespace(array: Any) -> Any:
    """The library that made the array: NumPy, or torch, which shares the names used here."""
    return torch if isinstance(array, Tensor) else np
