"""Random numbers that are a hash of their key, so that the order of draws does not matter.

The key of a number is (seed, row, step, stream, position, ...). A sequence decodes to the same
tokens alone or in any batch, in any order, on any device, and resuming needs no generator state.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# The finaliser and increment of splitmix64, as signed 64-bit numbers; int64 arithmetic wraps.
_MULTIPLY_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MULTIPLY_2 = 0x94D049BB133111EB - (1 << 64)
_INCREMENT = 0x9E3779B97F4A7C15 - (1 << 64)

# Streams separate the different draws of one (row, step, position).
ORDER, REVEAL, REMASK, TOKEN, RATE, MASKING, DROP_TEXT, DROP_IMAGE = range(8)


@dataclass(frozen=True)
class KeyedNoise:
    """Random numbers for the rows of a batch at one step."""

    seed: int
    """In [0, 2^63)."""
    step: int
    row_ids: Tensor
    """Key of each row, int64 [B]; rows with the same id draw the same numbers."""

    def uniform(self, positions: int, stream: int) -> Tensor:
        """Uniform draws from (0, 1), one per position, [B, N] float64."""
        index = torch.arange(positions, device=self.row_ids.device)
        return _to_unit(_absorb(self._key(self.row_ids, stream)[:, None], index))

    def gumbel(self, rows: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
        """Gumbel noise over the vocabulary at P chosen (row, position) pairs, [P, V] float64."""
        key = _absorb(self._key(self.row_ids[rows], TOKEN), positions)
        token = torch.arange(vocab_size, device=rows.device)
        return -torch.log(-torch.log(_to_unit(_absorb(key[:, None], token))))

    def _key(self, row_ids: Tensor, stream: int) -> Tensor:
        key = torch.full_like(row_ids, self.seed)
        for part in (row_ids, self.step, stream):
            key = _absorb(key, torch.as_tensor(part, device=key.device))
        return key


def _absorb(key: Tensor, part: Tensor) -> Tensor:
    x = (key ^ (part * _MULTIPLY_1)) + _INCREMENT
    x = (x ^ _shift_right(x, 30)) * _MULTIPLY_1
    x = (x ^ _shift_right(x, 27)) * _MULTIPLY_2
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # logical, not arithmetic


def _to_unit(x: Tensor) -> Tensor:
    return (_shift_right(x, 12).double() + 0.5) * 2.0**-52  # never 0 or 1
