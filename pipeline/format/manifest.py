"""The manifest: a table with one row per shard, stored as Parquet and read with Polars.

    OUTPUT/shards/train-00000-00.parquet    trajectories
    OUTPUT/rows/train-00000-00.json         its manifest row; written last, so it means "done"
    OUTPUT/manifest.parquet                 all rows, once the build is complete

During a build each row is a file of its own, and the manifest can be read already; a complete build
gathers all rows into one file. Everything read here is checked before it is used, because readers
open the files that a row names and trust its numbers.
"""

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from remask.models.checkpoints.folder import check_inside
from remask.pipeline.format.tables import read_table
from remask.pipeline.rules import RECORDED, RULES
from remask.pipeline.runtime.storage import Storage, StorageError

MANIFEST, ROWS, SHARDS = "manifest.parquet", "rows", "shards"

SCHEMA: dict[str, Any] = {
    "shard": pl.String,
    "path": pl.String,  # relative to the data set's folder
    "split": pl.String,
    "replica": pl.Int32,
    "schema_version": pl.Int32,
    "recipe": pl.String,  # hash
    "source": pl.String,  # hash
    "backbone": pl.String,  # fingerprint of the model probed or decoded; null if there is none
    "tokenizer": pl.String,  # hash
    "seed": pl.Int64,
    "origin": pl.String,  # of the trajectories: "rules" or "decodes"
    "proposal": pl.String,  # null for decodes, as are k, probe_mode, mean_tv and shift
    "k": pl.Int32,
    "probe_mode": pl.String,
    "horizon": pl.Int32,
    "segments": pl.Int32,  # S
    "vocab_size": pl.Int32,
    "mask_id": pl.Int32,
    "rows": pl.Int64,
    "skipped": pl.Int64,  # records that did not fit
    "tokens": pl.Int64,
    "longest": pl.Int32,  # tokens of the longest row
    "editable": pl.Int64,
    "keep": pl.Int64,  # editable positions that follow each rule
    **dict.fromkeys((*RULES, RECORDED), pl.Int64),
    "wrong_segments": pl.Int64,
    "mean_tv": pl.Float64,  # of a wrong segment to the uniform proposal, over editable positions
    "shift": pl.Float64,  # mean over rows of |E| · Σ TV, which the Layer-3 bound needs
    "decoder": pl.String,  # the spread of settings, as JSON; null for rules, as are the next five
    "wrong_share": pl.Float64,  # of the editable positions, in the states looked at
    "mean_passes": pl.Float64,  # forward passes per decode
    "already_right": pl.Float64,  # share of the decodes that end right
    "unchecked": pl.Int64,  # decodes on which the checker failed; they count as not right
    "dropped_runs": pl.Int64,  # runs older than the limit on S allows
    "bytes": pl.Int64,
    "sha256": pl.String,
    "num_shards": pl.Int32,  # planned in total: a complete manifest has as many rows
}
DECODED = ("decoder", "wrong_share", "mean_passes", "already_right", "unchecked", "dropped_runs")
"""Columns that only decodes have."""
NULLABLE = ("backbone", "proposal", "k", "probe_mode", "mean_tv", "shift", *DECODED)
KINDS: dict[Any, tuple[type, float]] = {
    pl.String: (str, 0),
    pl.Int32: (int, 2**31 - 1),
    pl.Int64: (int, 2**63 - 1),
    pl.Float64: (float, 1e300),
}
"""Python type and largest value of each column type."""
EMPTY_ROW: dict[str, Any] = {
    name: None if name in NULLABLE else KINDS[kind][0]() for name, kind in SCHEMA.items()
}
"""A row of null and zero values, to be filled in."""


def open_manifest(uri: str) -> pl.LazyFrame:
    """A data set's manifest, one row per shard; during a build, the rows committed so far."""
    storage = Storage(uri)
    files = read_files(storage)
    if files.problems:
        problem = next(iter(files.problems.values()))
        raise StorageError(f"{problem}; {how_to_repair(uri)}")
    if files.closed is not None:
        return files.closed.lazy()
    if files.late is None:
        raise StorageError(f"there is no data set at {storage.uri}; build one with `remask build`")
    return files.late.lazy()


def how_to_repair(uri: str) -> str:
    return f"run `remask shards {uri} verify --repair` and build again"


@dataclass(frozen=True)
class ManifestFiles:
    """The manifest files of a data set's folder."""

    closed: pl.DataFrame | None
    """The manifest of a complete build."""
    late: pl.DataFrame | None
    """Rows that are not in the closed manifest yet."""
    problems: dict[str, str]
    """What is wrong with each damaged file, by its name."""

    @property
    def whole(self) -> pl.DataFrame:
        """All rows; for a shard that was rebuilt, the newer row."""
        if self.closed is None or self.late is None:
            table = self.late if self.closed is None else self.closed
            return pl.DataFrame(schema=SCHEMA) if table is None else table
        kept = self.closed.join(self.late, on="shard", how="anti")
        return pl.concat([kept, self.late]).sort("shard")


def read_files(storage: Storage) -> ManifestFiles:
    """Read the manifest and the rows beside it; damaged files are reported in `problems`."""
    problems: dict[str, str] = {}
    closed, late = None, []
    if storage.exists(MANIFEST):
        try:
            closed = _read_manifest(storage.read(MANIFEST))
        except (ValueError, OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            problems[MANIFEST] = _damaged(storage, MANIFEST, error)
    names = sorted(f"{ROWS}/{x}" for x in storage.names(ROWS) if x.endswith(".json"))
    for name, data in zip(names, storage.read_all(names), strict=True):
        try:
            row = check_row(_upgraded_row(json.loads(data)))
            if name != _row_name(row["shard"]):
                raise ValueError(f"it is the row of {row['shard']!r}")
            late.append(row)
        except (ValueError, RecursionError) as error:
            problems[name] = _damaged(storage, name, error)
    return ManifestFiles(closed, pl.DataFrame(late, schema=SCHEMA) if late else None, problems)


def _read_manifest(data: bytes) -> pl.DataFrame:
    # Arrow reads and validates the file: Polars panics on some damaged files and invalid text.
    read = read_table(data)
    read.validate(full=True)
    table = _upgraded(pl.DataFrame(read))
    if table.schema != pl.Schema(SCHEMA):
        lacking = sorted({*SCHEMA} - {*table.columns})
        raise ValueError(f"it lacks the columns {lacking}" if lacking else "its columns differ")
    for row in table.iter_rows(named=True):
        check_row(row)
    if table["shard"].n_unique() != len(table):
        raise ValueError("a shard has two rows")
    return table


def _upgraded_row(row: Any) -> Any:
    """A manifest row as it was written before, in this schema.

    Paths of schema 3 had at most three segments; all trajectories came from rules at first; decodes
    had no checker at first.
    """
    if not isinstance(row, dict):
        return row
    if row.get("schema_version") == 3:
        row = {"relapse": 0, "relapse2": 0, RECORDED: 0, "segments": 3} | row
        row["wrong_segments"] = row.get("wrong")
    if _is_older(row):
        row = {"origin": "rules", **dict.fromkeys(DECODED)} | row
    if "unchecked" not in row:
        row = {"unchecked": 0 if row.get("origin") == "decodes" else None} | row
    return {name: row[name] for name in (*SCHEMA, *row) if name in row}


def _is_older(columns: Iterable[str]) -> bool:
    """Were rows with these columns written before there were decodes?"""
    return not {"origin", *DECODED} & {*columns}


def _upgraded(table: pl.DataFrame) -> pl.DataFrame:
    is_schema_3 = 3 in table["schema_version"] if "schema_version" in table.columns else False
    if not is_schema_3 and "unchecked" in table.columns:
        return table
    rows = [_upgraded_row(row) for row in table.iter_rows(named=True)]
    return pl.DataFrame(rows, schema_overrides=SCHEMA)


def check_row(row: Any) -> dict[str, Any]:
    """A manifest row, checked; ValueError if it is malformed."""
    if not isinstance(row, dict) or row.keys() != SCHEMA.keys():
        raise ValueError("it does not have the columns of a manifest row")
    for name, value in row.items():
        kind, largest = KINDS[SCHEMA[name]]
        if value is None and name in NULLABLE:
            continue
        if type(value) is not kind:
            raise ValueError(f"{name} must be {kind.__name__}, got {value!r}")
        if isinstance(value, str):
            value.encode()  # UnicodeEncodeError for half of a surrogate pair
        elif isinstance(value, int | float) and not 0 <= value <= largest:
            raise ValueError(f"{name} must lie in 0 .. {largest:g}, got {value!r}")
    shard, digest = row["shard"], row["sha256"]
    if "/" in check_inside(shard) or row["path"] != f"{SHARDS}/{shard}.parquet":
        raise ValueError(f"shard {shard!r} has the path {row['path']!r}")
    if len(digest) != 64 or not digest.isalnum():
        raise ValueError(f"sha256 must be 64 digits, got {digest!r}")
    return row


def committed(storage: Storage) -> set[str]:
    """Names of the shards that are done: listed in the manifest and present with the listed size.

    A shard with a damaged row is not listed, so it is rebuilt.
    """
    files, sizes = read_files(storage), storage.sizes(SHARDS)
    if MANIFEST in files.problems:
        raise StorageError(f"{files.problems[MANIFEST]}; {how_to_repair(storage.uri)}")
    table = files.whole.select("shard", "path", "bytes")
    return {
        shard for shard, path, size in table.iter_rows() if sizes.get(path.split("/")[-1]) == size
    }


def is_closed(storage: Storage, num_shards: int) -> bool:
    """Is the manifest complete, with every shard in place?"""
    has_rows = bool(storage.names(ROWS))
    return not has_rows and storage.exists(MANIFEST) and len(committed(storage)) == num_shards


def commit(storage: Storage, row: dict[str, Any]) -> None:
    """Record that a shard is done. Its file must be in place."""
    storage.write(_row_name(row["shard"]), json.dumps(row).encode())


def close(storage: Storage, recipe: str) -> pl.DataFrame:
    """Gather all rows into one manifest and remove their files. Safe to repeat after a kill.

    Args:
        storage: Folder of the data set.
        recipe: Hash of its recipe.

    Raises:
        StorageError: A row is damaged.
        ValueError: A row belongs to another recipe.
    """
    files = read_files(storage)
    for problem in files.problems.values():
        raise StorageError(f"{problem}; {how_to_repair(storage.uri)}")
    table = files.whole
    _check_recipe(storage, table, recipe)
    if files.late is not None:
        storage.write(MANIFEST, _to_bytes(table))
        storage.remove(_row_name(shard) for shard in files.late["shard"])
    return table


def check_recipe(storage: Storage, recipe: str) -> None:
    """Raise ValueError if a data set has shards of a recipe with another hash."""
    _check_recipe(storage, read_files(storage).whole, recipe)


def _check_recipe(storage: Storage, table: pl.DataFrame, recipe: str) -> None:
    others = table.filter(pl.col("recipe") != recipe)
    if not others.is_empty():
        raise ValueError(
            f"{storage.uri} has shards of another recipe, {others['shard'][0]} among them; choose "
            "another output or go back to that recipe"
        )


def _row_name(shard: str) -> str:
    return f"{ROWS}/{shard}.json"


def _damaged(storage: Storage, name: str, error: Exception) -> str:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return f"{storage.path(name)} is damaged: {reason}"


def _to_bytes(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table.sort("shard").write_parquet(out, compression="zstd")
    return out.getvalue()
