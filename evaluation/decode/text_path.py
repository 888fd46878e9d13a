"""The way of one answer through its states, small enough to be stored for every sample.

A state differs little from the one before, so differences of tokens compress to a few kilobytes.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_STATES = 32
"""Limit on the stored states of an answer; longer decodes are thinned out."""
MAX_BYTES = 1 << 26
"""Limit on the size of the states that are unpacked."""
HEADER = struct.Struct("<II")

Tokens = NDArray[np.int32]


@dataclass(frozen=True)
class TextPath:
    """Some states of an answer."""

    steps: list[int]
    """Number of the step after which each state stood, ascending from 0."""
    states: list[list[int]]
    """Tokens of each of them, [S, G]."""

    def pack(self) -> bytes:
        states = np.array(self.states, np.int32)
        changes = np.diff(states, axis=0, prepend=np.zeros_like(states[:1]))
        body = np.concatenate([np.array(self.steps, np.int32), changes.ravel()])
        return HEADER.pack(*states.shape) + zlib.compress(body.astype("<i4").tobytes())

    @classmethod
    def unpack(cls, data: bytes) -> "TextPath":
        """What `pack` gave; ValueError if it is anything else."""
        if len(data) < HEADER.size:
            raise ValueError(f"the states of an answer have {len(data)} bytes")
        count, length = HEADER.unpack_from(data)
        size = 4 * count * (1 + length)
        if not 0 < size <= MAX_BYTES:
            raise ValueError(f"the states of an answer would take {size} bytes")
        try:
            body = zlib.decompressobj().decompress(data[HEADER.size :], size + 1)
        except zlib.error as error:
            raise ValueError(f"the states of an answer cannot be unpacked: {error}") from error
        if len(body) != size:
            raise ValueError(f"the states of an answer are cut off after {len(body)} bytes")
        values = np.frombuffer(body, "<i4").astype(np.int32)
        changes = values[count:].reshape(count, length)
        return cls(values[:count].tolist(), np.cumsum(changes, axis=0, dtype=np.int32).tolist())


def make_path(states: Tokens, mask_id: int, limit: int = MAX_STATES) -> TextPath:
    """The states of an answer, [K+1, G]; of more than `limit`, those that tell most.

    These are the first and the last, the states around some of the steps that re-masked a token,
    and others at equal distances.
    """
    steps = _telling_steps(states, mask_id, limit)
    return TextPath(steps, states[steps].tolist())


def _telling_steps(states: Tokens, mask_id: int, limit: int) -> list[int]:
    last = len(states) - 1
    if last < limit:
        return list(range(last + 1))
    is_mask = states == mask_id
    remasking = np.flatnonzero((~is_mask[:-1] & is_mask[1:]).any(1))
    chosen = {0, last}
    for step in _spread(remasking.tolist(), limit // 4):
        chosen |= {step, step + 1}
    rest = [step for step in range(last + 1) if step not in chosen]
    return sorted(chosen.union(_spread(rest, limit - len(chosen))))


def _spread(values: Sequence[int], count: int) -> list[int]:
    """At most `count` of the values, at equal distances."""
    if len(values) <= count:
        return list(values)
    return [values[i * len(values) // count] for i in range(count)]
