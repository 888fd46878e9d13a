"""Examples and trajectories as Parquet: a row per sequence, its positions packed as `packing` says.

    example_id      text
    target          x*, an id per position
    noisy           a bit per position: does it move at all, revealed_at > 0?
    wrong           an id for each noisy position that starts visible: masked_at > 0
    masked_at       β of each noisy position
    revealed_at     μ of each noisy position
    step            t
    editable        a bit per position; null when it is all positions from prompt_length on
    prompt_length   positions of the condition

A file of examples has the columns without the trajectory's. What a position's other columns would
be follows: 0, and the target. The file's metadata says how many bits ids and boundaries have, so
`decode` needs nothing else.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from remask.pipeline.format.checks import check_meta, check_noise, check_tokens
from remask.pipeline.format.packing import (
    bits_for,
    pack,
    pack_bits,
    spread,
    unpack,
    unpack_bits,
    within,
)
from remask.pipeline.format.parquet import Columns, ParquetRows, to_parquet
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.trajectory import Bools, Ints, Noise, Trajectories, state_at

EXAMPLE_COLUMNS = ("example_id", "target", "editable", "prompt_length")
TRAJECTORY_COLUMNS = (
    *EXAMPLE_COLUMNS[:2],
    *("noisy", "wrong", "masked_at", "revealed_at", "step"),
    *EXAMPLE_COLUMNS[2:],
)


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

    @property
    def bits(self) -> int:
        """Of an id in a file."""
        return bits_for(self.size - 1)

    @property
    def meta(self) -> dict[str, Any]:
        """What a file's metadata says of it; excluded ids by the first and last of each run, for
        next to codes of images there are a hundred thousand."""
        ids = np.unique(np.array(self.excluded, np.int64))
        runs = np.split(ids, np.flatnonzero(np.diff(ids) > 1) + 1)
        return {
            "size": self.size,
            "mask_id": self.mask_id,
            "excluded": [[int(run[0]), int(run[-1])] for run in runs if len(run)],
            "id_bits": self.bits,
        }

    @classmethod
    def from_meta(cls, meta: dict[str, Any]) -> "Vocabulary":
        runs = (range(first, last + 1) for first, last in meta["excluded"])
        return cls(meta["size"], meta["mask_id"], tuple(x for run in runs for x in run))


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
    unchanged: Sequence[str] = ()
    """Ids of image edits of nothing, which are kept; named in a file of its own."""

    @property
    def is_token(self) -> Bools:
        """False at padding, [B, N]."""
        return within(self.lengths, self.target.shape[1])


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
    out[within(lengths, out.shape[1])] = np.concatenate([*sequences, []])
    return out, lengths


def encode_examples(examples: Examples) -> bytes:
    """Examples to the bytes of a Parquet file, the same bytes every time."""
    meta = {"kind": "examples", **examples.vocabulary.meta, "skipped": examples.num_skipped}
    return to_parquet(example_columns(examples), meta)


def example_columns(examples: Examples) -> Columns:
    """The columns that files of examples and of trajectories share."""
    return {
        "example_id": pa.array(examples.example_ids, pa.string()),
        "target": pack(
            examples.target[examples.is_token], examples.lengths, examples.vocabulary.bits
        ),
        "editable": _pack_editable(examples),
        "prompt_length": pa.array(examples.prompt_lengths, pa.int32()),
    }


def encode_trajectories(rows: TrajectoryRows) -> bytes:
    """Trajectories to the bytes of a Parquet file, the same bytes every time."""
    columns = example_columns(rows.examples)
    return encode_noise(rows.examples, columns, rows.trajectories.noise(), rows.horizon)


def encode_noise(examples: Examples, columns: Columns, noise: Noise, horizon: int) -> bytes:
    """The same, from the columns of the examples and what the trajectories add to them."""
    noisy = np.zeros(examples.target.shape, np.bool_)
    noisy.ravel()[noise.at] = True
    visible = np.concatenate([[0], np.cumsum(noise.masked_at > 0)])  # how many before each
    ends = np.cumsum(noise.count)
    num_visible = visible[ends] - visible[ends - noise.count]  # [B]
    vocabulary, bits = examples.vocabulary, bits_for(horizon)
    columns = {
        **columns,
        "noisy": pack_bits(noisy, examples.lengths),
        "wrong": pack(noise.wrong, num_visible, vocabulary.bits),
        "masked_at": pack(noise.masked_at, noise.count, bits),
        "revealed_at": pack(noise.revealed_at, noise.count, bits),
        "step": pa.array(noise.step, pa.uint16()),
    }
    return to_parquet(
        {name: columns[name] for name in TRAJECTORY_COLUMNS},
        {"kind": "trajectories", **vocabulary.meta, "horizon": horizon, "boundary_bits": bits},
    )


def decode_trajectories(data: bytes, where: str) -> TrajectoryRows:
    """The inverse of `encode_trajectories`; `where` names the file in errors."""
    file = TrajectoryFile(data, where)
    return file.read(range(file.num_rows))


class ExampleFile:
    """An encoded file of examples."""

    def __init__(self, data: bytes, where: str) -> None:
        self._file = ParquetRows(data, "examples", EXAMPLE_COLUMNS, where)
        with self._file.named():
            _check_meta(self._file.meta, "skipped")

    @cached_property
    def columns(self) -> Columns:
        """As they lie in the file, for shards to take over."""
        table = self._file.table()
        return dict(zip(table.column_names, table.columns, strict=True))

    def decode(self) -> Examples:
        """The inverse of `encode_examples`."""
        with self._file.named():
            return _examples(self.columns, self._file.meta)


class TrajectoryFile:
    """An encoded shard that is read a part at a time."""

    def __init__(self, data: bytes, where: str) -> None:
        self._file = ParquetRows(data, "trajectories", TRAJECTORY_COLUMNS, where)
        with self._file.named():
            _check_meta(self._file.meta, "horizon", "boundary_bits")

    @property
    def num_rows(self) -> int:
        return self._file.num_rows

    def read(self, rows: range) -> TrajectoryRows:
        """Some rows, from the row groups they lie in."""
        table, meta = self._file.table(rows), self._file.meta
        with self._file.named():
            examples = _examples(table, meta)
            noise = _noise(table, examples, meta)
        drawn = noise.over(examples.target, examples.editable)
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


def _check_meta(meta: dict[str, Any], *numbers: str) -> None:
    check_meta(meta, *numbers)
    for name, largest in (("id_bits", meta["size"] - 1), ("boundary_bits", meta.get("horizon"))):
        if largest is not None and meta[name] != bits_for(largest):
            raise ValueError(f"numbers up to {largest} have {bits_for(largest)} bits as {name}")


def _examples(columns: Columns | pa.Table, meta: dict[str, Any]) -> Examples:
    """Examples, checked; ValueError says what is wrong."""
    values, lengths = unpack(columns["target"], meta["id_bits"])
    prompt_lengths = columns["prompt_length"].to_numpy()
    check_tokens(values, lengths, prompt_lengths, meta)
    kept = within(lengths, int(lengths.max(initial=0)))
    return Examples(
        example_ids=_Strings(columns["example_id"]),
        target=spread(values, kept),
        editable=_unpack_editable(columns["editable"], kept, lengths, prompt_lengths),
        lengths=lengths,
        prompt_lengths=prompt_lengths,
        vocabulary=Vocabulary.from_meta(meta),
        num_skipped=meta.get("skipped", 0),
    )


def _noise(table: pa.Table, examples: Examples, meta: dict[str, Any]) -> Noise:
    """What moves, checked; ValueError says what is wrong."""
    bits = meta["boundary_bits"]
    at = np.flatnonzero(unpack_bits(table["noisy"], examples.lengths, examples.target.shape[1]))
    masked_at, count = unpack(table["masked_at"], bits)
    is_visible = np.flatnonzero(masked_at > 0)
    if len(is_visible) and is_visible[-1] >= len(at):
        raise ValueError(f"masked_at has {len(masked_at)} values for {len(at)} positions")
    noise = Noise(
        at=at,
        count=count,
        masked_at=masked_at,
        revealed_at=unpack(table["revealed_at"], bits)[0],
        visible=at[is_visible],
        wrong=unpack(table["wrong"], meta["id_bits"])[0],
        step=table["step"].to_numpy(),
    )
    is_usual = table["editable"].null_count == len(table)
    all_editable = is_usual and not examples.prompt_lengths.any()
    check_noise(noise, examples.editable, meta, all_editable=all_editable)
    return noise


class _Strings(Sequence[str]):
    """A column of text, made Python's only when asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        found = self._column[index]
        return found.to_pylist() if isinstance(index, slice) else found.as_py()

    def __iter__(self) -> Iterator[str]:
        return iter(self._column.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def _pack_editable(examples: Examples) -> pa.Array:
    kept = examples.is_token
    is_usual = (examples.editable == _after(examples.prompt_lengths, kept)).all(1)
    others = np.flatnonzero(~is_usual)
    bits = pack_bits(examples.editable[others], examples.lengths[others]).cast(pa.binary())
    return bits.take(pa.array(np.cumsum(~is_usual) - 1, mask=is_usual))


def _unpack_editable(
    column: pa.ChunkedArray, kept: Bools, lengths: Ints, prompt_lengths: Ints
) -> Bools:
    editable = _after(prompt_lengths, kept)
    if column.null_count < len(column):
        others = np.flatnonzero(column.is_valid())
        editable[others] = unpack_bits(column.drop_null(), lengths[others], kept.shape[1])
    return editable


def _after(prompt_lengths: Ints, kept: Bools) -> Bools:
    """The positions after the prompt, [B, N]: what is editable as a rule."""
    if not prompt_lengths.any():
        return kept.copy()
    return kept & (np.arange(kept.shape[1]) >= prompt_lengths[:, None])
