"""A data set's shards as a trainer reads them: checked against their manifest, verified once."""

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
    """One split of a data set: what its manifest says, and its rows by number."""

    def __init__(self, uri: str, split: str) -> None:
        self.uri, self.split = uri, split
        whole = open_manifest(uri).collect()
        self._check(whole)
        self.splits = set(whole.filter(pl.col("rows") > 0)["split"])
        """All that the data set has rows of."""
        table = whole.filter(pl.col("split") == split).sort("shard")
        if not table["rows"].sum():
            raise ValueError(f"{uri} has no rows of split {split!r}; add some with `remask build`")
        self.table = table
        self._storage = Storage(uri)
        self._edges = np.concatenate([[0], np.cumsum(table["rows"].to_numpy())])
        self._verified: set[int] = set()
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._most_recent = 1

    @property
    def num_rows(self) -> int:
        return int(self._edges[-1])

    @property
    def sizes(self) -> Ints:
        """Rows of each shard, [S]."""
        return np.diff(self._edges)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the shards' checksums: the same rows, the same data."""
        lines = "\n".join(self.table["sha256"])
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def the(self, column: str) -> Any:
        """The value that all shards share in a column."""
        values = self.table[column].unique().to_list()
        if len(values) > 1:
            raise ValueError(f"shards of {self.uri} differ in {column}: {sorted(values)}")
        return values[0]

    def open(self, shard: int) -> TrajectoryFile:
        """A shard, for one reader: it keeps the row groups at hand that were read last."""
        path = self.table["path"][shard]
        file = TrajectoryFile(self._bytes(shard, path), self._storage.path(path))
        if file.num_rows != self.sizes[shard]:
            raise self._bad(path, "has not the rows its manifest says")
        return file

    def names(self, row_ids: Ints) -> list[str]:
        """Shard, row and example of rows, for messages."""
        shards = np.searchsorted(self._edges, row_ids, side="right") - 1
        names = []
        for row_id, shard in zip(row_ids.tolist(), shards.tolist(), strict=True):
            row = row_id - int(self._edges[shard])
            found = self.open(shard).read(range(row, row + 1)).examples.example_ids[0]
            names.append(f"{self.table['shard'][shard]}:{row} ({found})")
        return names

    def row_ids(self, shard: int, rows: range) -> Ints:
        return int(self._edges[shard]) + np.arange(rows.start, rows.stop)

    def keep(self, count: int) -> None:
        """Hold this many shards' bytes in memory, for readers that share them."""
        self._most_recent = count

    def _bytes(self, shard: int, path: str) -> bytes:
        if shard in self._recent:
            self._recent.move_to_end(shard)
            return self._recent[shard]
        data = self._storage.read(path)
        if shard not in self._verified:
            if hashlib.sha256(data).hexdigest() != self.table["sha256"][shard]:
                raise self._bad(path, "does not match its checksum")
            self._verified.add(shard)
        self._recent[shard] = data
        while len(self._recent) > self._most_recent:
            self._recent.popitem(last=False)
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
