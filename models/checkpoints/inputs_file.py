"""inputs.json: how the inputs of a model are read, so that `remask revise` needs nothing else.

    {"format": 1, "source": {"kind": "text", "prompt": "{prompt}", "max_length": 64, ...}}

`source` has the settings of the build recipe's source that matter for reading one input, without
places of data. What they mean is decided in `pipeline/inputs`; here the file is read as hostile:
its size, its format and the types of its values are checked, and nothing else.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remask.models.checkpoints import adapter
from remask.models.checkpoints.folder import CheckpointError, check_sums, reads_folder
from remask.models.checkpoints.input_files import INPUTS, has_input_files
from remask.models.checkpoints.shipped import checkpoint_folder
from remask.models.config import check_plain

FORMAT = 1
MAX_BYTES = 1 << 22
"""Limit on the size of the file."""


@reads_folder
def inputs_folder(path_or_name: str | os.PathLike[str]) -> Path:
    """The folder with the files that say how a checkpoint's inputs are read.

    It is the checkpoint's own folder, or that of its base model if it is an adapter without such
    files.
    """
    folder = checkpoint_folder(path_or_name)
    if adapter.is_adapter(folder) and not has_input_files(folder):
        return checkpoint_folder(adapter.read_settings(folder).base)
    return folder


@reads_folder
def read_inputs(path_or_name: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The section `source` of inputs.json; None if there is no such file.

    Raises CheckpointError if the file is damaged, too large, or of another format.
    """
    path = inputs_folder(path_or_name) / INPUTS
    if not path.is_file():
        return None
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise CheckpointError(f"{path} has {size:,} bytes, more than the limit of {MAX_BYTES:,}")
    check_sums(path.parent, [path])
    return parse_inputs(path.read_bytes(), str(path))


def parse_inputs(data: bytes, name: str) -> dict[str, Any]:
    """The section `source` of the bytes of inputs.json; `name` is for errors."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is not JSON: {error}") from error
    if not isinstance(values, dict) or values.keys() != {"format", "source"}:
        raise CheckpointError(f"{name} must hold format and source; train the model again")
    if type(values["format"]) is not int or values["format"] != FORMAT:
        raise CheckpointError(
            f"{name} has format {str(values['format'])[:20]}, this reader takes {FORMAT}; use a "
            "matching version of remask"
        )
    source = values["source"]
    if not isinstance(source, dict) or not isinstance(source.get("kind"), str):
        raise CheckpointError(f"{name}: source must be keys and values, with a kind")
    try:
        check_plain(source, f"{name}: source")
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    return source


def inputs_json(source: Mapping[str, Any]) -> bytes:
    """The bytes of inputs.json for such a section."""
    return json.dumps({"format": FORMAT, "source": source}, indent=2).encode() + b"\n"
