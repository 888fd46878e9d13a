"""Whole Parquet tables, read from bytes in memory."""

import pyarrow as pa
import pyarrow.parquet as pq


def read_table(data: bytes) -> pa.Table:
    """Read a Parquet file in the calling thread.

    `read_table` of pyarrow reads in Arrow's own threads. One that lets go of `data` while the
    interpreter exits aborts the process (https://github.com/apache/arrow/issues/34314).
    """
    return pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
