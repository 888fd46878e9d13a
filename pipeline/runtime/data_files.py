"""Tables that `datasets` loads, from files and the hub, with errors that name what is wrong.

Data on the hub is named in one of two ways. `hf:owner/name` means its files: they are fetched, and
read like files on this disk. For `owner/name`, `datasets` decides what is read.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from remask.models.checkpoints import hub
from remask.models.checkpoints.hub_name import is_hub_name, parse_hub_name
from remask.pipeline.runtime.storage import read_file

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
"""Loaders of `datasets`, by the suffix of a file."""
NO_DATA = ("config.json", "dataset_dict.json", "dataset_info.json", "dataset_infos.json")
"""Files of data sets on the hub that describe them."""


def is_data_file(data: str) -> bool:
    """Does a name belong to a file, by its suffix? Any other name is a folder or on the hub."""
    return PurePosixPath(data).suffix in FORMATS and not is_hub_name(data)


def local_files(data: str, split: str, config: str | None = None) -> list[str]:
    """The files of data, those of a name `hf:owner/name` fetched; none for other hub names.

    Args:
        data: A file by path or URI, or a name on the hub.
        split: Name of the split. In a repository with several files, its files are those with the
            split's name as a word in their path, such as data/train-00000-of-00001.parquet.
        config: Configuration: the folder that its files are in, if there is one of that name.

    Raises:
        ValueError: There is no such data set, or it is not clear which files are meant.
        StorageError: The hub cannot be reached.
    """
    if not is_hub_name(data):
        return [data] if is_data_file(data) else []

    def choose(sizes: Mapping[str, int]) -> list[str]:
        return _choose_files(data, list(sizes), split, config)

    return [str(x) for x in hub.data_files(data, choose)]


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
    if is_hub_name(name):
        return load_files(local_files(name, split, config), split, name)
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


def _choose_files(data: str, names: list[str], split: str, config: str | None) -> list[str]:
    """The files of a split among all files of a repository."""
    path = parse_hub_name(data).path
    tables = sorted(x for x in names if PurePosixPath(x).suffix in FORMATS)
    if path in tables:
        return [path]
    tables = [x for x in tables if not path or x.startswith(f"{path}/")]
    tables = [x for x in tables if PurePosixPath(x).name not in NO_DATA]
    if config is not None:
        of_config = [x for x in tables if config in PurePosixPath(x).parent.parts]
        tables = of_config or tables
    if not tables:
        raise ValueError(f"{data} holds no data: no {', '.join(FORMATS)} file is there")
    chosen = tables
    if len(tables) > 1:
        inside = len(path) + 1 if path else 0
        words = re.compile(rf"(?<![a-z0-9]){re.escape(split)}(?![a-z0-9])", re.IGNORECASE)
        chosen = [x for x in tables if words.search(x[inside:])]
    if len({PurePosixPath(x).suffix for x in chosen}) != 1:
        repo = parse_hub_name(data).repo
        raise ValueError(
            f"{data} does not say which of {', '.join(tables[:5])} is the split {split!r}; name a "
            f"file, such as hf:{repo}/{tables[0]}"
        )
    return chosen


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
