"""Row operations of the pipeline that need a loop: compiled, or in NumPy with the same result.

Both give the same bytes, so a missing compiler costs time and changes no data.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from remask.kernels.build import native

Ints = NDArray[np.integer]
Floats = NDArray[np.floating]

PADDING = 15
"""Fills the last half byte of a row with an odd number of values. Values lie below it."""


def uniforms(key: int, count: int) -> Floats:
    """Uniform draws from [0, 1) by SplitMix64, [count]; draw i depends on the key and i alone.

    They cost a third of the draws of a NumPy generator, which supplies the key.
    """
    library = native("rows").library
    if library is None:
        return (_splitmix64(key, count) >> np.uint64(11)) * 2.0**-53
    out = np.empty(count)
    library.remask_uniforms(ctypes.c_int64(count), ctypes.c_uint64(key), _pointer(out))
    return out


def choose_subsets(count: Ints, size: Ints, draws: Floats) -> Ints:
    """Choose a subset of each of B sets, uniformly among all subsets of the given size.

    Floyd's algorithm chooses from n items in turns r = 1 .. size. Turn r draws one of the first
    n - size + r items and takes it, or takes the last of these if the drawn item is already taken.

    Args:
        count: Number of items in each set, [B]. Items are numbered consecutively across sets.
        size: Number of items to choose from each set, at most its count, [B].
        draws: Uniform draws from [0, 1), one for each item to choose, set after set, [P].

    Returns:
        The numbers of the chosen items, ascending, [P].
    """
    if (size < 0).any() or (size > count).any() or size.sum() != len(draws):
        raise ValueError(
            f"sizes must lie between 0 and the counts and sum to the {len(draws)} draws, got "
            f"sizes {size} of counts {count}"
        )
    library = native("rows").library
    if library is None:
        return _choose_by_turns(count, size, draws)
    chosen = np.empty(len(draws), np.int64)
    draws = np.ascontiguousarray(draws, np.float64)
    _call(library.remask_choose_subsets, _longs(count), _longs(size), draws, chosen)
    return chosen


def pack_halves(values: Ints, count: Ints) -> Ints:
    """Pack values below 15 into half bytes, the first into the low half; each row starts a byte.

    Args:
        values: The values of all rows, one row after another.
        count: Number of values in each row, [B].
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
    """Invert `pack_halves`.

    Args:
        packed: The bytes of all rows, one row after another.
        size: Number of bytes in each row, [B].

    Returns:
        The values of all rows, one row after another, and the number of values in each row, [B].
    """
    ends = np.cumsum(size)[size > 0]
    count = 2 * size
    count[size > 0] -= packed[ends - 1] >> 4 == PADDING
    library = native("rows").library
    if library is None:
        halves = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)
        values = halves[halves != PADDING]
        if len(values) != count.sum():
            raise ValueError(f"a row holds {PADDING}, which stands for padding, before its end")
        return values, count
    values = np.empty(int(count.sum()), np.uint8)
    _call(library.remask_unpack_halves, _longs(count), np.ascontiguousarray(packed), values)
    return values, count


def _splitmix64(key: int, count: int) -> NDArray[np.uint64]:
    """The first outputs of the generator seeded with the key, [count]."""
    step, first, second = (
        np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    )
    z = np.arange(1, count + 1, dtype=np.uint64) * step + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * first
    z = (z ^ (z >> np.uint64(27))) * second
    return z ^ (z >> np.uint64(31))


def _choose_by_turns(count: Ints, size: Ints, draws: Floats) -> Ints:
    """Floyd's algorithm, one turn at a time for all sets."""
    # Largest sizes first, so that the sets that need a further turn are always a prefix. NumPy
    # sorts short integers in linear time.
    order = np.argsort(size.astype(np.min_scalar_type(size.max(initial=0))), kind="stable")[::-1]
    first, number = ((np.cumsum(x) - x)[order] for x in (count, size))
    num_items = (count - size + 1)[order]  # that the first turn draws from
    taken = np.zeros(count.sum(), np.bool_)
    num_active = len(size) - np.cumsum(np.bincount(size))  # sets that have a turn 0, 1, ...
    for turn, active in enumerate(num_active[:-1]):
        begin, limit = first[:active], num_items[:active] + turn
        drawn = begin + (draws[number[:active] + turn] * limit).astype(np.int64)
        taken[np.where(taken[drawn], begin + limit - 1, drawn)] = True
    return np.flatnonzero(taken)


def _call(function: Any, count: Ints, *arrays: NDArray) -> None:
    """Call a compiled function with the number of rows, their counts, and other arrays."""
    function(ctypes.c_int64(len(count)), *map(_pointer, (count, *arrays)))


def _pointer(array: NDArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _longs(numbers: Ints) -> Ints:
    return np.ascontiguousarray(numbers, np.int64)
