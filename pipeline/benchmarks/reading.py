"""Benchmark data as typed records, from a local JSONL file or a data set on the hub.

A name that ends in `.jsonl` or `.jsonl.gz` is a local file; any other, and each that begins with
`hf:`, is a data set on the hub.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from remask.models.checkpoints.hub_name import is_hub_name
from remask.pipeline.runtime.data_files import load_from_hub

JsonRow = dict[str, Any]
R = TypeVar("R")


def read_records(
    data: str, split: str, make: Callable[[JsonRow, int], R], config: str | None = None
) -> list[R]:
    """Read all rows of a benchmark, each made into a record.

    Args:
        data: A local file or the name of a data set on the hub.
        split: Split of the data set on the hub; a file is read whole.
        make: Turns a row and its number, from 1, into a record. It raises KeyError for a missing
            field and TypeError, ValueError or OverflowError for a malformed one.
        config: Configuration of the data set on the hub.

    Raises:
        ValueError: The data cannot be read, is empty, or has a row that `make` refuses; the message
            names the file and the row.
    """
    is_file = data.endswith((".jsonl", ".jsonl.gz")) and not is_hub_name(data)
    rows = _lines(data) if is_file else load_from_hub(data, split, config)
    records = []
    for number, row in enumerate(rows, 1):
        try:
            records.append(make(row, number))
        except KeyError as error:
            raise ValueError(
                f"{data}: row {number} has no field {error}; it has {sorted(row)}"
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{data}: row {number}: {error}") from error
    if not records:
        raise ValueError(f"{data} holds no rows")
    return records


def text_field(row: JsonRow, name: str) -> str:
    """A row's field that must be a non-empty string."""
    if not isinstance(row[name], str) or not row[name].strip():
        raise ValueError(f"{name} must be a non-empty text, got {row[name]!r}")
    return row[name]


def unix_newlines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _lines(path: str) -> Iterator[JsonRow]:
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}")
    open_text = gzip.open if path.endswith(".gz") else open
    try:
        with open_text(path, "rt", encoding="utf-8") as file:
            lines = file.readlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: row {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}: row {number} is not a JSON object")
        yield row
