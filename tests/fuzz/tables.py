"""Parquet files that any reader can open, with contents that none expects.

Columns of other types, nulls, numbers out of range, bytes of other lengths, no rows at all, and
metadata that says something else.
"""

import json
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutate import INTEGERS, NUMBERS, few, mutate_value, short, text, to_json

TYPES = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint64(), pa.float32()),
    *(pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.bool_()),
    *(pa.list_(pa.int32()), pa.null(), pa.timestamp("us"), pa.date32(), pa.decimal128(10, 2)),
    *(pa.struct([("a", pa.int32())]), pa.dictionary(pa.int32(), pa.string()), pa.binary(3)),
)
OPERATIONS = (
    "values",
    "values",
    "values",
    "type",
    "nulls",
    "drop",
    "rename",
    "order",
    "rows",
    "meta",
)


def rewrite(data: bytes, rng: Random, *, most: int = 2) -> tuple[bytes, list[str]]:
    """A table with other contents, in sound Parquet."""
    table, notes = pq.read_table(pa.BufferReader(data)), []
    for _ in range(few(rng, most)):
        while True:
            try:
                changed, note = _change(table, rng)
                written = _written(changed, rng)
            except (pa.ArrowException, OverflowError, TypeError, ValueError, KeyError):
                continue  # not every column can be made everything
            break
        table, data = changed, written
        notes.append(note)
    return data, notes


def _written(table: pa.Table, rng: Random) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(
        table,
        out,
        compression=rng.choice(("zstd", "none", "snappy")),
        use_dictionary=rng.random() < 0.5,
        row_group_size=rng.choice((1, 8192)),
    )
    return out.getvalue().to_pybytes()


def _change(table: pa.Table, rng: Random) -> tuple[pa.Table, str]:
    name = rng.choice(table.column_names or [""])
    at = table.column_names.index(name)
    match rng.choice(OPERATIONS):
        case "type":
            kind = rng.choice(TYPES)
            column = _of_type(table[name], kind)
            return table.set_column(at, name, column), f"{name} is {kind}"
        case "nulls":
            keep = [rng.random() < 0.5 for _ in range(len(table))]
            values = [x if k else None for x, k in zip(table[name].to_pylist(), keep, strict=True)]
            changed = table.set_column(at, name, pa.array(values, table[name].type))
            return changed, f"{keep.count(False)} of {name} are null"
        case "drop":
            return table.drop_columns([name]), f"no {name}"
        case "rename":
            new = rng.choice((text(rng), *table.column_names))
            names = [new if x == name else x for x in table.column_names]
            return table.rename_columns(names), f"{name} is called {short(new)}"
        case "order":
            names = rng.sample(table.column_names, len(table.column_names))
            return table.select(names), "columns in another order"
        case "rows":
            count = rng.choice((0, 0, 1, max(0, len(table) - 1), 2 * len(table)))
            rows = [rng.randrange(len(table)) for _ in range(count)] if len(table) else []
            return table.take(pa.array(rows, pa.int64())), f"{count} rows of {len(table)}"
        case "meta" if table.schema.metadata:
            meta, note = _other_metadata(dict(table.schema.metadata), rng)
            return table.replace_schema_metadata(meta), note
        case _:
            values, note = _other_values(table[name].to_pylist(), rng)
            column = pa.array(values, _room(table[name].type))
            return table.set_column(at, name, column), f"{name}: {note}"


def _room(kind: pa.DataType) -> pa.DataType:
    """Fixed-size bytes would not take others."""
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def _of_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    try:
        return column.cast(kind, safe=False)
    except (pa.ArrowException, NotImplementedError):
        return pa.nulls(len(column), kind)


def _other_values(values: list[Any], rng: Random) -> tuple[list[Any], str]:
    if not values:
        return values, "nothing to change"
    rows = [rng.randrange(len(values))] if rng.random() < 0.7 else range(len(values))
    new = values[:]
    for row in rows:
        new[row] = _other_value(values[row], rng)
    return new, f"{short(new[rows[0]])} in {len(rows)} of {len(values)} rows"


def _other_value(old: Any, rng: Random) -> Any:
    if isinstance(old, bytes):
        at = rng.randrange(len(old) + 1)
        filled = bytes([rng.choice((0, 1, 0x0F, 0x7F, 0xFF))]) * len(old)
        return rng.choice((b"", old[:at], old + old, old + b"\0", filled, rng.randbytes(len(old))))
    if isinstance(old, str):
        return text(rng).encode(errors="replace").decode()  # Arrow takes no surrogates
    if isinstance(old, bool):
        return not old
    if isinstance(old, float):
        return float(rng.choice([x for x in NUMBERS if abs(x) < 1e300 or x != x]))
    if isinstance(old, int):
        return rng.choice((old + 1, old - 1, -old, *INTEGERS))
    if isinstance(old, list):
        return rng.choice(([], old + old, old[:1], None))
    return rng.choice((0, 1, -1, "x", b"x", None))


def _other_metadata(meta: dict[bytes, bytes], rng: Random) -> tuple[dict[bytes, bytes], str]:
    key = rng.choice(list(meta))
    if rng.random() < 0.1:
        del meta[key]
        return meta, f"no metadata {key!r}"
    try:
        values = json.loads(meta[key])
    except ValueError:
        meta[key] = text(rng).encode(errors="replace")
        return meta, f"metadata {key!r} = {meta[key]!r}"
    values, notes = mutate_value(values, rng, most=1)
    meta[key] = to_json(values)
    return meta, f"metadata {key.decode(errors='replace')}: {notes[0]}"
