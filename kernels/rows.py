"""Row work of the pipeline that is a loop by nature: compiled, or in NumPy with the same result.

Data made by either are the same bytes, so nothing but time depends on whether there is a compiler.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remask.kernels.build import native

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]

PADDING = 15
"""Fills the last half of a row with an odd number of values, so halves hold values below it."""


def uniforms(key: int, count: int) -> Floats:
    """Numbers in [0, 1) that a key decides: SplitMix64's, the i-th a function of key and i alone.

    A generator of NumPy gives the key; a shard's many numbers then cost a third of its own.
    """
    library = native("rows").library
    if library is None:
        return (_splitmix64(key, count) >> np.uint64(11)) * 2.0**-53
    out = np.empty(count)
    library.remask_uniforms(ctypes.c_int64(count), ctypes.c_uint64(key), _pointer(out))
    return out


def choose_subsets(count: Ints, size: Ints, chance: Floats) -> Ints:
    """Choose a subset of each of B sets, all subsets of its size alike likely.

    Floyd's algorithm: of n items, draw one of the first n - size + 1; then one of the first
    n - size + 2, or the last of these if the drawn one is taken; and so on.

    Args:
        count: Items in each set, [B]. Items are numbered through, from one set to the next.
        size: Items to choose of each set, at most its count, [B].
        chance: Numbers in [0, 1), one for each item to choose, set after set, [P].

    Returns:
        The numbers of the chosen items, ascending, [P].
    """
    if (size < 0).any() or (size > count).any() or size.sum() != len(chance):
        raise ValueError(
            f"sizes must lie between 0 and the counts and sum to the {len(chance)} numbers in "
            f"chance, got sizes {size} of counts {count}"
        )
    library = native("rows").library
    if library is None:
        return _choose_by_turns(count, size, chance)
    chosen = np.empty(len(chance), np.int64)
    chance = np.ascontiguousarray(chance, np.float64)
    _call(library.remask_choose_subsets, _longs(count), _longs(size), chance, chosen)
    return chosen


def pack_halves(values: Ints, count: Ints) -> Ints:
    """Values below 15 to two in a byte, the first in the low half; each row starts a byte.

    Args:
        values: The values of all rows, one row after another.
        count: How many of them each row has, [B].
    """
    library = native("rows").library
    if library is None:
        ends = np.cumsum(count)[count % 2 == 1]
        even = np.insert(values, ends, PADDING)
        return even[::2] | even[1::2] << 4
    packed = np.empty(int(((count + 1) // 2).sum()), np.uint8)
    _call(library.remask_pack_halves, _longs(count), np.ascontiguousarray(values), packed)
    return packed


def unpack_halves(packed: Ints, size: Ints) -> tuple[Ints, Ints]:
    """The inverse: the values of all rows, and how many each has, by the bytes it has, [B]."""
    ends = np.cumsum(size)[size > 0]
    count = 2 * size
    count[size > 0] -= packed[ends - 1] >> 4 == PADDING
    library = native("rows").library
    if library is None:
        both = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)
        values = both[both != PADDING]
        if len(values) != count.sum():
            raise ValueError(f"a row holds {PADDING}, which stands for padding, before its end")
        return values, count
    values = np.empty(int(count.sum()), np.uint8)
    _call(library.remask_unpack_halves, _longs(count), np.ascontiguousarray(packed), values)
    return values, count


def _splitmix64(key: int, count: int) -> NDArray[np.uint64]:
    """The first numbers of the generator that the key seeds, [count]."""
    step, first, second = (
        np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    )
    z = np.arange(1, count + 1, dtype=np.uint64) * step + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * first
    z = (z ^ (z >> np.uint64(27))) * second
    return z ^ (z >> np.uint64(31))


def _choose_by_turns(count: Ints, size: Ints, chance: Floats) -> Ints:
    """Floyd's algorithm, a turn at a time on all sets."""
    # The largest first, so that in any turn those not yet done are a prefix; NumPy sorts short
    # integers in linear time.
    order = np.argsort(size.astype(np.min_scalar_type(size.max(initial=0))), kind="stable")[::-1]
    first, number = ((np.cumsum(x) - x)[order] for x in (count, size))
    num_items = (count - size + 1)[order]  # to draw from, in the first turn
    taken = np.zeros(count.sum(), np.bool_)
    num_left = len(size) - np.cumsum(np.bincount(size))  # [S+1]: sets of more than 0 .. S items
    for turn, left in enumerate(num_left[:-1]):
        begin, room = first[:left], num_items[:left] + turn
        drawn = begin + (chance[number[:left] + turn] * room).astype(np.int64)
        taken[np.where(taken[drawn], begin + room - 1, drawn)] = True
    return np.flatnonzero(taken)


def _call(function: Any, count: Ints, *arrays: NDArray) -> None:
    """Call a compiled function on the number of rows, their counts, and other arrays."""
    function(ctypes.c_int64(len(count)), *map(_pointer, (count, *arrays)))


def _pointer(array: NDArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _longs(numbers: Ints) -> Ints:
    return np.ascontiguousarray(numbers, np.int64)
