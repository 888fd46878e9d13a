"""Examples and trajectories as Parquet: a row per sequence, token arrays as packed bytes.

Ids and boundaries are stored in the narrowest integer type that holds them, as binary columns:
Parquet keeps small integers in lists as 32-bit ones, which are larger and several times slower to
read. What follows from another column is left out: `masked_at` has a value only for positions whose
`revealed_at` is not 0, and `wrong` only for those whose `masked_at` is not. The file's metadata
says the types, so `decode` needs nothing else.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.storage import Storage, StorageError
from pipeline.trajectory import Bools, Ints, Trajectories, state_at

SCHEMA_VERSION = 1
ROW_GROUP = 8192
META = b"remask"

EXAMPLE_FIELDS = [
    pa.field("example_id", pa.string(), nullable=False),
    pa.field("target", pa.binary(), nullable=False),
    pa.field("editable", pa.binary(), nullable=False),  # a bit per position
    pa.field("prompt_length", pa.int32(), nullable=False),
]
TRAJECTORY_FIELDS = [
    *EXAMPLE_FIELDS[:2],
    pa.field("wrong", pa.binary(), nullable=False),  # where masked_at > 0
    pa.field("masked_at", pa.binary(), nullable=False),  # where revealed_at > 0
    pa.field("revealed_at", pa.binary(), nullable=False),
    pa.field("step", pa.uint16(), nullable=False),
    *EXAMPLE_FIELDS[2:],
]


@dataclass(frozen=True)
class Vocabulary:
    """What token ids mean to the pipeline."""

    size: int
    mask_id: int
    excluded: tuple[int, ...] = ()
    """Special and unused ids, which are never proposed; MASK need not be among them."""

    @property
    def allowed(self) -> Ints:
        """Ids that may be proposed, ascending."""
        ids = np.arange(self.size)
        return ids[~np.isin(ids, [*self.excluded, self.mask_id])]

    @property
    def dtype(self) -> np.dtype:
        """Narrowest type for an id."""
        return np.min_scalar_type(self.size - 1)


@dataclass(frozen=True)
class Examples:
    """Clean sequences of any lengths, padded to the longest: [B, N] arrays."""

    example_ids: Sequence[str]
    target: Ints
    editable: Bools
    """False at padding."""
    lengths: Ints
    prompt_lengths: Ints
    vocabulary: Vocabulary
    num_skipped: int = 0
    """Records left out because they did not fit."""
    starts: Ints | None = None
    """What each row should be revised from, [B, N], where the source knows it; kept in a file of
    its own."""
    left_out: Sequence[str] = ()
    """Which records those were and why, where the source says so; kept in a file of its own."""

    @property
    def is_token(self) -> Bools:
        """False at padding, [B, N]."""
        return _within(self.lengths, self.target.shape[1])


@dataclass(frozen=True)
class TrajectoryRows:
    """A shard's rows in memory: its examples and one trajectory for each."""

    examples: Examples
    trajectories: Trajectories
    horizon: int


@dataclass(frozen=True)
class Row:
    """One sequence of a shard, [N] arrays."""

    example_id: str
    target: Ints
    wrong: Ints
    masked_at: Ints
    revealed_at: Ints
    step: int
    editable: Bools
    prompt_length: int
    horizon: int
    mask_id: int


def states(row: Row) -> Ints:
    """A row expanded to its T+1 states, [T+1, N]."""
    one = Trajectories(
        *(x[None] for x in (row.target, row.wrong, row.masked_at, row.revealed_at)),
        step=np.array([row.step]),
        editable=row.editable[None],
    )
    return np.concatenate([state_at(one, k, row.mask_id) for k in range(row.horizon + 1)])


def hash_share(key: bytes) -> float:
    """A number in [0, 1) that the key decides: who is below a share belongs to it."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=6).digest()) / 2**48


def pad(sequences: Sequence[NDArray], dtype: np.dtype, fill: int = 0) -> tuple[NDArray, Ints]:
    """Sequences of any lengths to one array [B, N] and their lengths [B]."""
    lengths = np.array([len(x) for x in sequences], np.int64)
    out = np.full((len(sequences), int(lengths.max(initial=0))), fill, dtype)
    out[_within(lengths, out.shape[1])] = np.concatenate([*sequences, []])
    return out, lengths


def encode_examples(examples: Examples) -> bytes:
    """Examples to the bytes of a Parquet file, the same bytes every time."""
    dtype = examples.vocabulary.dtype
    columns = [
        pa.array(examples.example_ids, pa.string()),
        _pack(examples.target.astype(dtype, copy=False), examples.lengths),
        _pack_bits(examples.editable, examples.lengths),
        pa.array(examples.prompt_lengths, pa.int32()),
    ]
    return _to_parquet(
        columns, EXAMPLE_FIELDS, "examples", examples.vocabulary, {"skipped": examples.num_skipped}
    )


def encode_trajectories(rows: TrajectoryRows) -> bytes:
    """Trajectories to the bytes of a Parquet file, the same bytes every time."""
    examples, drawn = rows.examples, rows.trajectories
    lengths, dtype = examples.lengths, examples.vocabulary.dtype
    noisy = np.flatnonzero(drawn.revealed_at > 0)
    visible = noisy[np.flatnonzero(drawn.masked_at.ravel()[noisy] > 0)]
    columns = [
        pa.array(examples.example_ids, pa.string()),
        _pack(drawn.target.astype(dtype, copy=False), lengths),
        _pack_at(drawn.wrong.astype(dtype, copy=False), visible),
        _pack_at(drawn.masked_at, noisy),
        _pack(drawn.revealed_at, lengths),
        pa.array(drawn.step, pa.uint16()),
        _pack_bits(examples.editable, lengths),
        pa.array(examples.prompt_lengths, pa.int32()),
    ]
    extra = {"horizon": rows.horizon, "boundary_dtype": drawn.masked_at.dtype.name}
    return _to_parquet(columns, TRAJECTORY_FIELDS, "trajectories", examples.vocabulary, extra)


def decode_examples(data: bytes, where: str) -> Examples:
    """The inverse of `encode_examples`; `where` names the file in errors."""
    file = _File(data, EXAMPLE_FIELDS, "examples", where)
    return _examples(file.table(range(file.num_rows)), file.meta)


def decode_trajectories(data: bytes, where: str) -> TrajectoryRows:
    """The inverse of `encode_trajectories`; `where` names the file in errors."""
    file = TrajectoryFile(data, where)
    return file.read(range(file.num_rows))


class TrajectoryFile:
    """An encoded shard that is read a part at a time."""

    def __init__(self, data: bytes, where: str) -> None:
        self._file = _File(data, TRAJECTORY_FIELDS, "trajectories", where)

    @property
    def num_rows(self) -> int:
        return self._file.num_rows

    def read(self, rows: range) -> TrajectoryRows:
        """Some rows, from the row groups they lie in."""
        table, meta = self._file.table(rows), self._file.meta
        examples = _examples(table, meta)
        kept, boundary = examples.is_token, np.dtype(meta["boundary_dtype"])
        revealed_at = _unpack(table["revealed_at"], boundary, kept)
        masked_at = _unpack(table["masked_at"], boundary, revealed_at > 0)
        wrong = examples.target.copy()
        wrong[masked_at > 0] = _flat(table["wrong"], examples.target.dtype)[1]
        drawn = Trajectories(
            target=examples.target,
            wrong=wrong,
            masked_at=masked_at,
            revealed_at=revealed_at,
            step=table["step"].to_numpy(),
            editable=examples.editable,
        )
        return TrajectoryRows(examples, drawn, meta["horizon"])


def read_rows(uri: str) -> Iterator[Row]:
    """The rows of one shard file, by its URI."""
    folder, _, name = uri.rpartition("/")
    storage = Storage(folder or ".")
    shard = decode_trajectories(storage.read(name), uri)
    examples, drawn = shard.examples, shard.trajectories
    for i, example_id in enumerate(examples.example_ids):
        kept = slice(0, int(examples.lengths[i]))
        yield Row(
            example_id,
            drawn.target[i, kept],
            drawn.wrong[i, kept],
            drawn.masked_at[i, kept],
            drawn.revealed_at[i, kept],
            int(drawn.step[i]),
            drawn.editable[i, kept],
            int(examples.prompt_lengths[i]),
            shard.horizon,
            examples.vocabulary.mask_id,
        )


def _examples(table: pa.Table, meta: dict) -> Examples:
    vocabulary = Vocabulary(meta["size"], meta["mask_id"], tuple(meta["excluded"]))
    offsets, flat = _flat(table["target"], vocabulary.dtype)
    lengths = np.diff(offsets) // vocabulary.dtype.itemsize
    kept = _within(lengths, int(lengths.max(initial=0)))
    return Examples(
        example_ids=table["example_id"].to_pylist(),
        target=_spread(flat, kept),
        editable=_unpack_bits(table["editable"], lengths),
        lengths=lengths,
        prompt_lengths=table["prompt_length"].to_numpy(),
        vocabulary=vocabulary,
        num_skipped=meta.get("skipped", 0),
    )


def _to_parquet(columns, fields, kind: str, vocabulary: Vocabulary, extra: dict) -> bytes:
    meta = {
        "schema": SCHEMA_VERSION,
        "kind": kind,
        "size": vocabulary.size,
        "mask_id": vocabulary.mask_id,
        "excluded": list(vocabulary.excluded),
        **extra,
    }
    schema = pa.schema(fields, {META: json.dumps(meta, sort_keys=True).encode()})
    out = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=schema),
        out,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        row_group_size=ROW_GROUP,
    )
    return out.getvalue()


class _File:
    """A Parquet file of ours in memory: checked when opened, read by rows."""

    def __init__(self, data: bytes, fields, kind: str, where: str) -> None:
        self._where = where
        with self._named():
            self._file = pq.ParquetFile(pa.BufferReader(data))
        schema = self._file.schema_arrow
        self.meta = json.loads((schema.metadata or {}).get(META, b"{}"))
        if self.meta.get("kind") != kind:
            raise StorageError(f"{where} does not hold {kind}")
        if self.meta["schema"] != SCHEMA_VERSION:
            raise StorageError(
                f"{where} has schema version {self.meta['schema']}, this reader takes "
                f"{SCHEMA_VERSION}; rebuild it with `remask build`"
            )
        if schema.names != [f.name for f in fields]:
            raise StorageError(
                f"{where} has columns {schema.names}; remove it and run the build again"
            )
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._edges = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._groups, self._table = range(0), None

    @property
    def num_rows(self) -> int:
        return int(self._edges[-1])

    def table(self, rows: range) -> pa.Table:
        """Some rows; the row groups they lie in stay at hand for the next."""
        first, last = np.searchsorted(self._edges, [rows.start, rows.stop - 1], side="right") - 1
        groups = range(int(first), int(last) + 1) if rows else range(len(self._edges) - 1)
        if self._table is None or groups != self._groups:
            with self._named():  # a core per unit
                self._table = self._file.read_row_groups(list(groups), use_threads=False)
            self._groups = groups
        return self._table.slice(rows.start - int(self._edges[groups.start]), len(rows))

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0]
            raise StorageError(
                f"{self._where} is damaged: {reason}; remove it and run the build again"
            ) from error


def _within(lengths: Ints, width: int) -> Bools:
    """Where a row has not ended yet, [B, width]."""
    if (lengths == width).all():
        return np.ones((len(lengths), width), np.bool_)
    return np.arange(width) < lengths[:, None]


def _pack(values: NDArray, lengths: Ints) -> pa.Array:
    """An array [B, N] as one binary value per row, as long as the row."""
    kept = _within(lengths, values.shape[1])
    flat = values if kept.all() else values[kept]
    return _binary(np.ascontiguousarray(flat), lengths * values.dtype.itemsize)


def _pack_at(values: NDArray, places: Ints) -> pa.Array:
    """The same of some places: ascending indices into the flattened array."""
    num_rows, num_positions = values.shape
    sizes = np.bincount(places // num_positions, minlength=num_rows)
    return _binary(values.ravel()[places], sizes * values.dtype.itemsize)


def _pack_bits(values: Bools, lengths: Ints) -> pa.Array:
    return _pack(np.packbits(values, axis=1, bitorder="little"), (lengths + 7) // 8)


def _binary(flat: NDArray, sizes: Ints) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(flat)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _flat(column: pa.ChunkedArray, dtype: np.dtype) -> tuple[Ints, NDArray]:
    """Byte offsets [B+1] and all values of a binary column."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no rows, no chunks
        return np.zeros(1, np.int64), np.zeros(0, dtype)
    _, offsets, data = array.buffers()
    start, count = array.offset, len(array)
    edges = np.frombuffer(offsets, np.int32)[start : start + count + 1].astype(np.int64)
    values = np.frombuffer(data or b"", np.uint8)[edges[0] : edges[-1]]
    return edges - edges[0], values.view(dtype)


def _spread(flat: NDArray, kept: Bools) -> NDArray:
    """Values laid out row by row where `kept` holds; 0 at padding."""
    if kept.all():
        return flat.reshape(kept.shape)
    out = np.zeros(kept.shape, flat.dtype)
    out[kept] = flat
    return out


def _unpack(column: pa.ChunkedArray, dtype: np.dtype, kept: Bools) -> NDArray:
    return _spread(_flat(column, dtype)[1], kept)


def _unpack_bits(column: pa.ChunkedArray, lengths: Ints) -> Bools:
    sizes = (lengths + 7) // 8
    packed = _unpack(column, np.dtype(np.uint8), _within(sizes, int(sizes.max(initial=0))))
    width = int(lengths.max(initial=0))
    bits = np.unpackbits(packed, axis=1, count=width, bitorder="little")
    return bits.view(np.bool_) & _within(lengths, width)
