"""Arrays of ids, steps and bits as binary columns: one value per row, packed.

Parquet keeps small integers in lists as 32-bit ones, which are larger and several times slower to
read and write. Here a number takes 4, 8, 16 or 32 bits. With 4, the first number of a byte lies in
its low half, and a last half of 15 is padding. Where all rows of a file have one size, the column
is of fixed size, which spares a length per row.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from remask.kernels.rows import PADDING, pack_halves, unpack_halves
from remask.pipeline.format.checks import check_sizes
from remask.pipeline.trajectory import Bools, Ints


def bits_for(largest: int) -> int:
    """The fewest bits that hold numbers up to the largest: 4, 8, 16 or 32."""
    return 4 if largest < PADDING else 8 * np.min_scalar_type(largest).itemsize


def pack(values: Ints, count: Ints, bits: int) -> pa.Array:
    """Numbers as one binary value per row.

    Args:
        values: The numbers of all rows, one row after another.
        count: How many of them each row has, [B].
        bits: Size of each number.
    """
    if values.size and int(values.max()) >= (PADDING if bits == 4 else 1 << bits):
        raise ValueError(f"{values.max()} does not fit in {bits} bits; widen the vocabulary's size")
    values = values.astype(_dtype(bits), copy=False)
    if bits == 4:
        return _binary(pack_halves(values, count), (count + 1) // 2)
    return _binary(values, count * values.itemsize)


def unpack(column: pa.ChunkedArray, bits: int) -> tuple[Ints, Ints]:
    """The inverse of `pack`: values and count; ValueError if a row ends within a number."""
    data, size = _bytes(column)
    if bits == 4:
        return unpack_halves(data, size)
    if (size % (bits // 8)).any():
        raise ValueError(f"a row ends within a number of {bits} bits")
    return data.view(_dtype(bits)), size // (bits // 8)


def pack_bits(values: Bools, lengths: Ints) -> pa.Array:
    """A bit per position of a grid [B, N], the first one lowest, cut to the length of each row."""
    packed, size = np.packbits(values, axis=1, bitorder="little"), (lengths + 7) // 8
    kept = within(size, packed.shape[1])
    return _binary(packed if kept.all() else packed[kept], size)


def unpack_bits(column: pa.ChunkedArray, lengths: Ints, width: int) -> Bools:
    """The inverse of `pack_bits`, [B, width]; ValueError if a row has more bits or fewer."""
    data, size = _bytes(column)
    check_sizes("bits", size, (lengths + 7) // 8)
    packed = spread(data, within(size, (width + 7) // 8))
    bits = np.unpackbits(packed, axis=1, count=width, bitorder="little")
    return bits.view(np.bool_) & within(lengths, width)


def within(lengths: Ints, width: int) -> Bools:
    """Where a row has not ended yet, [B, width]."""
    if (lengths == width).all():
        return np.ones((len(lengths), width), np.bool_)
    return np.arange(width) < lengths[:, None]


def spread(values: NDArray, kept: Bools) -> NDArray:
    """Values laid out row by row where `kept` holds, [B, N]; 0 elsewhere."""
    if kept.all():
        return values.reshape(kept.shape)
    out = np.zeros(kept.shape, values.dtype)
    out[kept] = values
    return out


def _dtype(bits: int) -> np.dtype:
    return np.dtype(f"<u{max(1, bits // 8)}")


def _binary(values: NDArray, size: Ints) -> pa.Array:
    data, largest = pa.py_buffer(np.ascontiguousarray(values)), int(size.max(initial=0))
    if largest and (size == largest).all():
        return pa.Array.from_buffers(pa.binary(largest), len(size), [None, data])
    offsets = np.zeros(len(size) + 1, np.int32)
    np.cumsum(size, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(size), [None, pa.py_buffer(offsets), data])


def _bytes(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], Ints]:
    """All bytes of a binary column, and how many each row has, [B]."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no rows, no chunks
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    start, count, data = array.offset, len(array), np.frombuffer(array.buffers()[-1] or b"", "u1")
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        return data[start * width : (start + count) * width], np.full(count, width)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[start : start + count + 1]
    return data[offsets[0] : offsets[-1]], np.diff(offsets).astype(np.int64)
