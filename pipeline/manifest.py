"""The table of shards: a row each, as Parquet, read with Polars.

    OUTPUT/shards/train-00000-00.parquet    trajectories
    OUTPUT/rows/train-00000-00.parquet      its manifest row: written last, so it says "done"
    OUTPUT/manifest.parquet                 all rows, once the build is complete

While a build is under way the rows lie apart and can be read all the same; when it is complete they
are one file, however many shards there are.
"""

import io
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
    "tokens": pl.Int64,
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
    names = sorted(storage.names(ROWS))
    if not names:
        raise StorageError(f"there is no data set at {storage.uri}; build one with `remask build`")
    return pl.concat([_read_row(storage, name) for name in names]).lazy()


def committed(storage: Storage) -> set[str]:
    """Names of the shards that are done."""
    names = {name.removesuffix(".parquet") for name in storage.names(ROWS)}
    if storage.exists(MANIFEST):
        names |= set(open_manifest(storage.uri).collect()["shard"])
    return names


def commit(storage: Storage, row: dict[str, Any]) -> None:
    """Say that a shard is done. Its file must be in place."""
    storage.write(f"{ROWS}/{row['shard']}.parquet", _to_bytes(pl.DataFrame([row], schema=SCHEMA)))


def close(storage: Storage) -> pl.DataFrame:
    """Gather all rows into one manifest and remove them. Safe to repeat after a kill."""
    table = open_manifest(storage.uri).collect()
    names = storage.names(ROWS)
    if names:
        known = set(table["shard"])
        late = [_read_row(storage, n) for n in names if n.removesuffix(".parquet") not in known]
        table = pl.concat([table, *late]).sort("shard")
        storage.write(MANIFEST, _to_bytes(table))
        storage.remove(f"{ROWS}/{name}" for name in names)
    return table


def _read_row(storage: Storage, name: str) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(storage.read(f"{ROWS}/{name}")))


def _to_bytes(table: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    table.write_parquet(out, compression="zstd")
    return out.getvalue()
