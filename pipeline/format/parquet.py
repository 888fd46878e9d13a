"""Our Parquet files: deterministic bytes, checked on opening, read in parts."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from remask.pipeline.format.checks import check_columns, check_table
from remask.pipeline.runtime.storage import StorageError

SCHEMA_VERSION = 4
READABLE_VERSIONS = (3, SCHEMA_VERSION)
"""Schema versions of trajectories that can be read."""
ROW_GROUP = 8192
META = b"remask"
RAW = ("noisy",)
"""Columns of random bits, which are stored uncompressed: zstd cannot shrink them."""

Columns = Mapping[str, pa.Array | pa.ChunkedArray]


def to_parquet(columns: Columns, meta: dict[str, Any]) -> bytes:
    """Encode columns and metadata as a Parquet file."""
    fields = [pa.field(n, x.type, nullable=x.null_count > 0) for n, x in columns.items()]
    text = json.dumps({"schema": SCHEMA_VERSION, **meta}, sort_keys=True)
    schema = pa.schema(fields, {META: text.encode()})
    out = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(list(columns.values()), schema=schema),
        out,
        compression={n: "none" if n in RAW else "zstd" for n in columns},  # pyright: ignore
        use_dictionary=False,
        write_statistics=False,
        row_group_size=ROW_GROUP,
    )
    return out.getvalue().to_pybytes()


class ParquetRows:
    """A file in memory that holds rows of one kind; errors mention its name, `where`."""

    def __init__(
        self, data: bytes, kind: str, where: str, *, versions: Sequence[int] = (SCHEMA_VERSION,)
    ) -> None:
        self._where = where
        with self.named():
            self._file = pq.ParquetFile(pa.BufferReader(data))
            schema, metadata = self._file.schema_arrow, self._file.metadata
            sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            meta = json.loads((schema.metadata or {}).get(META, b"{}"))
        self.meta: dict[str, Any] = meta if isinstance(meta, dict) else {}
        if self.meta.get("kind") != kind:
            raise StorageError(f"{where} does not hold {kind}")
        if self.meta.get("schema") not in versions:
            raise StorageError(
                f"{where} has schema version {self.meta.get('schema')}, this reader takes "
                f"{' and '.join(map(str, versions))}; rebuild it with `remask build`"
            )
        self.column_names: list[str] = schema.names
        with self.named():
            check_columns(schema)
        self._edges = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._groups, self._table = range(0), None

    @property
    def num_rows(self) -> int:
        return int(self._edges[-1])

    def table(self, rows: range | None = None) -> pa.Table:
        """A range of rows; defaults to all. Their row groups stay in memory for the next call."""
        rows = range(self.num_rows) if rows is None else rows
        first, last = np.searchsorted(self._edges, [rows.start, rows.stop - 1], side="right") - 1
        groups = range(int(first), int(last) + 1) if rows else range(len(self._edges) - 1)
        if self._table is None or groups != self._groups:
            with self.named():
                # One thread: each worker has one core.
                self._table = self._file.read_row_groups(list(groups), use_threads=False)
                check_table(self._table)
            self._groups = groups
        return self._table.slice(rows.start - int(self._edges[groups.start]), len(rows))

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Turn errors about the file's contents into a one-line StorageError with its name."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise StorageError(
                f"{self._where} is damaged: {reason}; remove it and run the build again"
            ) from error
