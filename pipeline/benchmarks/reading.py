"""Benchmark data as typed records, from a local JSONL file or a data set on the hub.

A name that ends in `.jsonl` or `.jsonl.gz` is a local file; any other is a data set on the hub.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

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
    is_file = data.endswith((".jsonl", ".jsonl.gz"))
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


def load_from_hub(name: str, split: str, config: str | None = None) -> Any:
    """Load a split of a data set on the hub.

    A copy of the data set may lack the configuration, in which case its default is loaded. Without
    a configuration, all of them are loaded and concatenated.
    """
    import datasets  # slow to import

    def load(config: str | None) -> Any:
        return datasets.load_dataset(name, config, split=split)

    try:
        try:
            return load(config)
        except ValueError:
            if config is not None:
                return load(None)
            names = datasets.get_dataset_config_names(name)  # MATH has one for each subject
            if len(names) < 2:
                raise
            return datasets.concatenate_datasets([load(config) for config in names])
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"data {name!r} cannot be loaded from the hub: {reason}; or pass the path of a local "
            ".jsonl file"
        ) from error


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
