"""Trajectories as Parquet: the columns of examples, and these.

    noisy           a bit per position: does it ever show anything but its target?
    end_1           the step at which the target of each noisy position appears
    token_1         the token that each noisy position shows until then
    end_2, token_2  the same for the segment before; end 0 and no token where there is none
    ...             up to end_{S-1}, token_{S-1}
    step            the current step t

Segments are counted backwards from the target, so that a column means the same in files of any S.
A token column in which every segment shows MASK is left out: under the paper's rules, `token_1`.
Numbers are packed as `packing` says; the file's metadata gives S and the bits of ids and ends, so
`decode_trajectories` needs nothing else.

Schema 3 had S = 3, with `revealed_at` for end_1, `masked_at` for end_2 and `wrong` for token_2; it
is read as such.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from remask.kernels import Segments
from remask.pipeline.format.checks import check_ids, check_moves
from remask.pipeline.format.examples import (
    EXAMPLE_COLUMNS,
    Examples,
    check_file_meta,
    decode_examples,
    example_columns,
)
from remask.pipeline.format.packing import (
    bits_for,
    pack,
    pack_bits,
    unpack,
    unpack_bits,
)
from remask.pipeline.format.parquet import READABLE_VERSIONS, Columns, ParquetRows, to_parquet
from remask.pipeline.moves import Bools, Ints, Moves
from remask.pipeline.runtime.storage import Storage

SCHEMA_3_NAMES = {"end_1": "revealed_at", "end_2": "masked_at", "token_2": "wrong"}
MAX_SEGMENTS = 256
"""Segments of a position in a file."""


@dataclass(frozen=True)
class TrajectoryRows:
    """A shard's rows in memory: its examples and the trajectory of each."""

    examples: Examples
    moves: Moves
    horizon: int

    @cached_property
    def segments(self) -> Segments[Ints]:
        """The trajectories of all positions, padding included."""
        return self.moves.over(self.examples.target)


@dataclass(frozen=True)
class Row:
    """One sequence of a shard."""

    example_id: str
    tokens: Ints
    """[S, N]; the last ones are the target."""
    ends: Ints
    """Step at which each segment but the last ends, [S-1, N]."""
    step: int
    editable: Bools
    """[N]."""
    prompt_length: int
    horizon: int
    mask_id: int

    @property
    def target(self) -> Ints:
        """Clean tokens x*, [N]."""
        return self.tokens[-1]


def states(row: Row) -> Ints:
    """A row expanded to its T+1 states, [T+1, N]."""
    segments = Segments(row.tokens[:, None], row.ends[:, None], np.array([row.step]))
    return segments.states(row.horizon)[:, 0]


def encode_trajectories(rows: TrajectoryRows) -> bytes:
    """Trajectories to the bytes of a Parquet file, the same bytes every time."""
    return encode_moves(rows.examples, example_columns(rows.examples), rows.moves, rows.horizon)


def encode_moves(examples: Examples, columns: Columns, moves: Moves, horizon: int) -> bytes:
    """The same, from the columns of the examples and what the trajectories add to them."""
    noisy = np.zeros(examples.target.shape, np.bool_)
    noisy.ravel()[moves.at] = True
    vocabulary, bits = examples.vocabulary, bits_for(horizon)
    added: dict[str, pa.Array] = {"noisy": pack_bits(noisy, examples.lengths)}
    for i, (end, token) in enumerate(zip(moves.ends[::-1], moves.tokens[::-1], strict=True), 1):
        added[f"end_{i}"] = pack(end, moves.count, bits)
        shown, count = _of_segments(token, end, moves.count)
        if (shown != vocabulary.mask_id).any():
            added[f"token_{i}"] = pack(shown, count, vocabulary.bits)
    added["step"] = pa.array(moves.step, pa.uint16())
    meta = {"horizon": horizon, "end_bits": bits, "segments": len(moves.ends) + 1}
    return to_parquet(
        {**_first(columns), **added, **_last(columns)},
        {"kind": "trajectories", **vocabulary.meta, **meta},
    )


def _of_segments(token: Ints, end: Ints, count: Ints) -> tuple[Ints, Ints]:
    """The tokens of the segments that are not empty, and how many each row has, [B]."""
    if end.all():
        return token, count
    is_shown = end > 0
    before = np.concatenate([[0], np.cumsum(is_shown)])
    last = np.cumsum(count)
    return token[np.flatnonzero(is_shown)], before[last] - before[last - count]


def _first(columns: Columns) -> Columns:
    return {name: columns[name] for name in EXAMPLE_COLUMNS[:2]}


def _last(columns: Columns) -> Columns:
    return {name: columns[name] for name in EXAMPLE_COLUMNS[2:]}


def decode_trajectories(data: bytes, where: str) -> TrajectoryRows:
    """The inverse of `encode_trajectories`; `where` names the file in errors."""
    file = TrajectoryFile(data, where)
    return file.read(range(file.num_rows))


class TrajectoryFile:
    """An encoded shard that is read a part at a time."""

    def __init__(self, data: bytes, where: str) -> None:
        self._file = ParquetRows(data, "trajectories", where, versions=READABLE_VERSIONS)
        with self._file.named():
            if self._file.meta["schema"] == 3:
                self._file.meta["end_bits"] = self._file.meta.get("boundary_bits")
                self._file.meta["segments"] = 3
            check_file_meta(self._file.meta, "horizon", "end_bits", "segments")
            size = self._file.meta["segments"]
            if not 2 <= size <= MAX_SEGMENTS:
                raise ValueError(f"segments must lie in 2 .. {MAX_SEGMENTS}, got {size}")
            self._names = SCHEMA_3_NAMES if self._file.meta["schema"] == 3 else {}
            _check_names(self._file.column_names, size, self._names)

    @property
    def num_rows(self) -> int:
        return self._file.num_rows

    def read(self, rows: range) -> TrajectoryRows:
        """Some rows, from the row groups they lie in."""
        table, meta = self._file.table(rows), self._file.meta
        with self._file.named():
            examples = decode_examples(table, meta)
            moves = _moves(table, examples, meta, self._names)
        return TrajectoryRows(examples, moves, meta["horizon"])


def read_rows(uri: str) -> Iterator[Row]:
    """The rows of one shard file, by its URI."""
    folder, _, name = uri.rpartition("/")
    storage = Storage(folder or ".")
    shard = decode_trajectories(storage.read(name), uri)
    examples, segments = shard.examples, shard.segments
    for i, example_id in enumerate(examples.example_ids):
        kept = slice(0, int(examples.lengths[i]))
        yield Row(
            example_id,
            segments.tokens[:, i, kept],
            segments.ends[:, i, kept],
            int(segments.step[i]),
            examples.editable[i, kept],
            int(examples.prompt_lengths[i]),
            shard.horizon,
            examples.vocabulary.mask_id,
        )


def _check_names(names: Sequence[str], num_segments: int, renamed: dict[str, str]) -> None:
    """Raise ValueError unless a file has a trajectory's columns, token columns as it likes."""
    segments = range(1, num_segments)
    needed = {*EXAMPLE_COLUMNS, "noisy", "step", *(f"end_{i}" for i in segments)}
    allowed = needed | {f"token_{i}" for i in segments}
    needed, allowed = ({renamed.get(x, x) for x in group} for group in (needed, allowed))
    if len(set(names)) != len(names) or not needed <= set(names) <= allowed:
        raise ValueError(f"it has the columns {list(names)}")


def _moves(
    table: pa.Table, examples: Examples, meta: dict[str, Any], renamed: dict[str, str]
) -> Moves:
    """The positions that move, checked; ValueError says what is wrong."""
    at = np.flatnonzero(unpack_bits(table["noisy"], examples.lengths, examples.target.shape[1]))
    size = meta["segments"] - 1
    count, ends, tokens = None, [], []
    for i in range(size, 0, -1):
        name = renamed.get(f"end_{i}", f"end_{i}")
        end, count = unpack(table[name], meta["end_bits"])
        if end.size != at.size:
            raise ValueError(f"{name} has {end.size} values for {at.size} positions")
        name = renamed.get(f"token_{i}", f"token_{i}")
        column = table[name] if name in table.column_names else None
        ends.append(end)
        tokens.append(_tokens(name, column, end, at, examples, meta))
    moves = Moves(
        at=at,
        count=np.zeros(0, np.int64) if count is None else count,
        tokens=np.stack(tokens),
        ends=np.stack(ends),
        step=table["step"].to_numpy(),
    )
    is_usual = table["editable"].null_count == len(table)
    all_editable = is_usual and not examples.prompt_lengths.any()
    check_moves(moves, examples.editable, meta, all_editable=all_editable)
    return moves


def _tokens(
    name: str,
    column: pa.ChunkedArray | None,
    end: Ints,
    at: Ints,
    examples: Examples,
    meta: dict[str, Any],
) -> Ints:
    """What one segment of each moving position shows, [P]: the target where it is empty, MASK where
    the file has no column for it."""
    is_shown = end > 0
    if column is None:
        mask_id = examples.target.dtype.type(meta["mask_id"])
        if is_shown.all():
            return np.full(at.size, mask_id)
        return np.where(is_shown, mask_id, examples.target.ravel()[at])
    values, _ = unpack(column, meta["id_bits"])
    if values.size != np.count_nonzero(is_shown):
        raise ValueError(
            f"{name} has {values.size} values for {np.count_nonzero(is_shown)} positions"
        )
    check_ids(name, values, meta)
    tokens = examples.target.ravel()[at]
    tokens[is_shown] = values
    return tokens
