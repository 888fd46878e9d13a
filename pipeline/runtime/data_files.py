"""Tables that `datasets` loads, from files and the hub, with errors that name what is wrong."""

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from remask.pipeline.runtime.storage import read_file

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
"""Loaders of `datasets`, by the suffix of a file."""


def is_data_file(data: str) -> bool:
    """Does a name belong to a file, by its suffix? Any other name is a folder or on the hub."""
    return PurePosixPath(data).suffix in FORMATS


def load_files(files: Sequence[str], split: str, name: str) -> Any:
    """Load files of one format as one table.

    Args:
        files: Paths or URIs.
        split: Name of the split that the files form.
        name: Name of the data, for errors.
    """
    import datasets  # slow to import
    from datasets.exceptions import DatasetGenerationError

    loader = FORMATS[PurePosixPath(files[0]).suffix]
    try:
        return datasets.load_dataset(loader, data_files={split: list(files)}, split=split)
    except (OSError, ValueError, RecursionError, StopIteration, DatasetGenerationError) as error:
        fault = next(filter(None, map(_first_fault, files)), None)
        reason = fault or (str(error) or "it is empty").splitlines()[0]
        raise ValueError(f"cannot load {name}: {reason}") from error


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
            "file, such as .jsonl"
        ) from error


def _first_fault(uri: str) -> str | None:
    """The first line of a .jsonl file that is not a JSON object, and why: `datasets` does not say.

    Returns None for other files, if all lines are objects, and if the file cannot be read.
    """
    if not uri.endswith(".jsonl"):
        return None
    try:
        lines = read_file(uri).splitlines()
    except ValueError:
        return None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            return f"line {number} is not JSON: {error}"
        if not isinstance(row, dict):
            return f"line {number} holds {type(row).__name__}, not keys and values"
    return None
