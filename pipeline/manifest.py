"""The table of shards: a row each, as Parquet, read with Polars.

    OUTPUT/shards/train-00000-00.parquet    trajectories
    OUTPUT/rows/train-00000-00.json         its manifest row: written last, so it says "done"
    OUTPUT/manifest.parquet                 all rows, once the build is complete

While a build is under way the rows lie apart and can be read all the same; when it is complete they
are one file, however many shards there are.
"""

import io
import json
from typing import Any

import polars as pl

from pipeline.storage import Storage, StorageError

MANIFEST, ROWS, SHARDS = "manifest.parquet", "rows", "shards"

SCHEMA: dict[str, Any] = {
    "shard": pl.String,
    "path": pl.String,  # relative to the data set's folder
    "split": pl.String,
    "replica": pl.Int32,
    "schema_version": pl.Int32,
    "recipe": pl.String,  # hash
    "source": pl.String,  # hash
    "backbone": pl.String,  # fingerprint; null when nothing was probed
    "tokenizer": pl.String,  # hash
    "seed": pl.Int64,
    "proposal": pl.String,
    "k": pl.Int32,
    "probe_mode": pl.String,
    "horizon": pl.Int32,
    "vocab_size": pl.Int32,
    "mask_id": pl.Int32,
    "rows": pl.Int64,
    "skipped": pl.Int64,  # records that did not fit
    "tokens": pl.Int64,
    "longest": pl.Int32,  # tokens of a row at most
    "editable": pl.Int64,
    "keep": pl.Int64,
    "mask": pl.Int64,
    "wrong": pl.Int64,
    "doubt": pl.Int64,
    "mean_tv": pl.Float64,  # to the uniform proposal, over editable positions
    "shift": pl.Float64,  # mean over rows of |E| · Σ TV, which the Layer-3 bound needs
    "bytes": pl.Int64,
    "sha256": pl.String,
    "num_shards": pl.Int32,  # planned in all: a complete manifest has as many rows
}


def open_manifest(uri: str) -> pl.LazyFrame:
    """A data set's manifest, a row per shard: complete, or as far as its build has come."""
    storage = Storage(uri)
    if storage.exists(MANIFEST):
        return pl.read_parquet(io.BytesIO(storage.read(MANIFEST))).lazy()
    rows = _late_rows(storage)
    if rows is None:
        raise StorageError(f"there is no data set at {storage.uri}; build one with `remask build`")
    return rows.lazy()


def committed(storage: Storage) -> set[str]:
    """Names of the shards that are done: in the manifest, and there with the size it says."""
    sizes = storage.sizes(SHARDS)
    done = set()
    for table in _tables(storage):
        for shard, path, size in table.select("shard", "path", "bytes").iter_rows():
            if sizes.get(path.rsplit("/", 1)[-1]) == size:
                done.add(shard)
    return done


def commit(storage: Storage, row: dict[str, Any]) -> None:
    """Say that a shard is done. Its file must be in place."""
    storage.write(f"{ROWS}/{row['shard']}.json", json.dumps(row).encode())


def close(storage: Storage) -> pl.DataFrame:
    """Gather all rows into one manifest and remove them. Safe to repeat after a kill."""
    names = storage.names(ROWS)
    tables = _tables(storage)
    table = tables[0]
    if len(tables) > 1:  # shards that were built again
        table = pl.concat([table.join(tables[1], on="shard", how="anti"), tables[1]])
    if names:
        storage.write(MANIFEST, _to_bytes(table.sort("shard")))
        storage.remove([f"{ROWS}/{name}" for name in names])
    return table


def _tables(storage: Storage) -> list[pl.DataFrame]:
    """The manifest and the rows beside it, as far as they are there."""
    tables = []
    if storage.exists(MANIFEST):
        tables.append(pl.read_parquet(io.BytesIO(storage.read(MANIFEST))))
    rows = _late_rows(storage)
    return tables if rows is None else [*tables, rows]


def _late_rows(storage: Storage) -> pl.DataFrame | None:
    names = sorted(name for name in storage.names(ROWS) if name.endswith(".json"))
    if not names:
        return None
    found = storage.read_all(f"{ROWS}/{name}" for name in names)
    return pl.DataFrame([json.loads(data) for data in found], schema=SCHEMA).sort("shard")


def _to_bytes(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table.write_parquet(out, compression="zstd")
    return out.getvalue()
