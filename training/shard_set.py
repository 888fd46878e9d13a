"""A data set's shards as a trainer reads them: checked against the manifest, each verified once."""

import hashlib
from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from remask.pipeline import open_manifest
from remask.pipeline.format.manifest import how_to_repair
from remask.pipeline.format.parquet import READABLE_VERSIONS
from remask.pipeline.format.rows import TrajectoryFile
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.trajectory import Ints


class ShardSet:
    """One split of a data set: its part of the manifest, and its rows by index."""

    def __init__(self, uri: str, split: str) -> None:
        """Read the manifest.

        Raises:
            StorageError: The data set does not exist or cannot be read.
            ValueError: It is incomplete, of another version, or has no rows of this split.
        """
        self.uri, self.split = uri, split
        manifest = open_manifest(uri).collect()
        self._check(manifest)
        self.splits = set(manifest.filter(pl.col("rows") > 0)["split"])
        """Names of all splits that have rows."""
        table = manifest.filter(pl.col("split") == split).sort("shard")
        if not table["rows"].sum():
            raise ValueError(f"{uri} has no rows of split {split!r}; add some with `remask build`")
        self.table = table
        self._storage = Storage(uri)
        self._edges = np.concatenate([[0], np.cumsum(table["rows"].to_numpy())])
        self._verified: set[int] = set()
        self._cache: OrderedDict[int, bytes] = OrderedDict()
        self._cache_size = 1

    @property
    def num_rows(self) -> int:
        return int(self._edges[-1])

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows."""
        return int(self.table["tokens"].sum())

    @property
    def sizes(self) -> Ints:
        """Rows of each shard, [S]."""
        return np.diff(self._edges)

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(max(self.table["longest"]))

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the shards' checksums, which identifies the rows."""
        lines = "\n".join(self.table["sha256"])
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def shared_value(self, column: str) -> Any:
        """The value that all shards have in a manifest column; ValueError if they differ."""
        values = self.table[column].unique().to_list()
        if len(values) > 1:
            raise ValueError(f"shards of {self.uri} differ in {column}: {sorted(values)}")
        return values[0]

    def open(self, shard: int) -> TrajectoryFile:
        """Open a shard for one reader; the file keeps the row groups that were read last."""
        path = self.table["path"][shard]
        file = TrajectoryFile(self._bytes(shard, path), self._storage.path(path))
        if file.num_rows != self.sizes[shard]:
            raise self._bad(path, "does not have the rows that its manifest states")
        return file

    def names(self, row_ids: Ints) -> list[str]:
        """`shard:row (example)` of each row, for messages."""
        shards = np.searchsorted(self._edges, row_ids, side="right") - 1
        names = []
        for row_id, shard in zip(row_ids.tolist(), shards.tolist(), strict=True):
            row = row_id - int(self._edges[shard])
            (example_id,) = self.open(shard).read(range(row, row + 1)).examples.example_ids
            names.append(f"{self.table['shard'][shard]}:{row} ({example_id})")
        return names

    def row_ids(self, shard: int, rows: range) -> Ints:
        """Indices in the split of some rows of a shard."""
        return int(self._edges[shard]) + np.arange(rows.start, rows.stop)

    def set_cache_size(self, num_shards: int) -> None:
        """Keep the bytes of the shards read last in memory, for readers that share them."""
        self._cache_size = num_shards

    def _bytes(self, shard: int, path: str) -> bytes:
        if shard in self._cache:
            self._cache.move_to_end(shard)
            return self._cache[shard]
        data = self._storage.read(path)
        if shard not in self._verified:
            if hashlib.sha256(data).hexdigest() != self.table["sha256"][shard]:
                raise self._bad(path, "does not match its checksum")
            self._verified.add(shard)
        self._cache[shard] = data
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return data

    def _bad(self, path: str, problem: str) -> StorageError:
        return StorageError(f"{self._storage.path(path)} {problem}; {how_to_repair(self.uri)}")

    def _check(self, table: pl.DataFrame) -> None:
        versions = set(table["schema_version"])
        if not versions <= set(READABLE_VERSIONS):
            raise ValueError(
                f"{self.uri} has schema version {max(versions)}, this reader takes "
                f"{' and '.join(map(str, READABLE_VERSIONS))}; remove the data set and run "
                "`remask build` again"
            )
        planned = max(table["num_shards"].to_list(), default=0)
        if len(table) < planned:
            raise ValueError(
                f"{self.uri} has {len(table)} of its {planned} shards; finish it with `remask "
                "build`"
            )
