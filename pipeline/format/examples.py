"""Clean sequences as Parquet: a row per example, its positions packed as `packing` says.

    example_id      text
    target          x*, an id per position
    editable        a bit per position; null when it is all positions from prompt_length on
    prompt_length   positions of the condition

Files of trajectories (`rows.py`) have these columns too.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from remask.pipeline.format.checks import check_meta, check_tokens
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
from remask.pipeline.moves import Bools, Ints

EXAMPLE_COLUMNS = ("example_id", "target", "editable", "prompt_length")


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
        """Bits of an id in a file."""
        return bits_for(self.size - 1)

    @property
    def meta(self) -> dict[str, Any]:
        """The vocabulary as metadata. Excluded ids are stored as the first and last of each
        run: beside image codes there are a hundred thousand of them."""
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
class Example:
    """One clean sequence, without padding."""

    example_id: str
    target: Ints
    """[N]."""
    editable: Bools
    """[N]."""
    prompt_length: int

    @property
    def length(self) -> int:
        """N."""
        return self.target.size


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
    """Tokens that each row should be revised from, [B, N], if the source provides them; stored in a
    file of their own."""
    left_out: Sequence[str] = ()
    """Skipped records and the reasons, if the source gives them; stored in a file of their own."""
    unchanged: Sequence[str] = ()
    """Ids of no-op image edits, which are kept; listed in a file of their own."""

    @property
    def is_token(self) -> Bools:
        """False at padding, [B, N]."""
        return within(self.lengths, self.target.shape[1])

    def example(self, row: int) -> Example:
        """One of the sequences."""
        kept = slice(0, int(self.lengths[row]))
        return Example(
            self.example_ids[row],
            self.target[row, kept],
            self.editable[row, kept],
            int(self.prompt_lengths[row]),
        )

    def take(self, rows: Ints, width: int | None = None) -> "Examples":
        """Some of the sequences, padded to `width`, which defaults to the width as it is."""
        return replace(
            self,
            example_ids=[self.example_ids[row] for row in rows.tolist()],
            target=self.target[rows, :width],
            editable=self.editable[rows, :width],
            lengths=self.lengths[rows],
            prompt_lengths=self.prompt_lengths[rows],
            starts=None if self.starts is None else self.starts[rows, :width],
        )


def hash_share(key: bytes) -> float:
    """A number in [0, 1) that depends on the key alone: keys below a share belong to it."""
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


class ExampleFile:
    """An encoded file of examples."""

    def __init__(self, data: bytes, where: str) -> None:
        self._file = ParquetRows(data, "examples", where)
        with self._file.named():
            if list(self._file.column_names) != list(EXAMPLE_COLUMNS):
                raise ValueError(f"it has the columns {self._file.column_names}")
            check_file_meta(self._file.meta, "skipped")

    @cached_property
    def columns(self) -> Columns:
        """The columns as stored, for shards to copy."""
        table = self._file.table()
        return dict(zip(table.column_names, table.columns, strict=True))

    def decode(self) -> Examples:
        """The inverse of `encode_examples`."""
        with self._file.named():
            return decode_examples(self.columns, self._file.meta)


def check_file_meta(meta: dict[str, Any], *numbers: str) -> None:
    check_meta(meta, *numbers)
    for name, largest in (("id_bits", meta["size"] - 1), ("end_bits", meta.get("horizon"))):
        if largest is not None and meta[name] != bits_for(largest):
            raise ValueError(f"numbers up to {largest} have {bits_for(largest)} bits as {name}")


def decode_examples(columns: Columns | pa.Table, meta: dict[str, Any]) -> Examples:
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


class _Strings(Sequence[str]):
    """A column of text, made Python's only when asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        value = self._column[index]
        return value.to_pylist() if isinstance(index, slice) else value.as_py()

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
