"""Tables are read in the calling thread, so that none is left to abort an exiting process."""

import io
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from remask.pipeline.format.tables import read_table
from tests.places import ROOT

COUNT_THREADS = """
import os, sys
from pathlib import Path
import pyarrow.parquet
from remask.pipeline.format.tables import read_table
data = Path(sys.argv[1]).read_bytes()
before = set(os.listdir("/proc/self/task"))
read_table(data)
print(len(set(os.listdir("/proc/self/task")) - before))
"""


def test_a_table_is_read_whole():
    table = pa.table({"a": [1, 2, None], "b": ["x", "", "z"]})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2)
    assert read_table(out.getvalue()).equals(table)


def test_reading_starts_no_thread(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({name: range(1000) for name in "abcdef"}), path, row_group_size=100)
    command = [sys.executable, "-c", COUNT_THREADS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_nothing_else_reads_tables_from_memory():
    for room in ("pipeline", "training", "evaluation"):
        for path in (ROOT / room).rglob("*.py"):
            assert not re.search(r"\b(pq|parquet)\.read_table\(", path.read_text()), path
