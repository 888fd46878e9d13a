"""Which inputs a model takes: by its inputs.json or, without one, by its backbone or tokenizer."""

import os
from pathlib import Path
from typing import Any

from remask.models import Backbone, CheckpointError, SudokuMDM
from remask.models.checkpoints.input_files import INPUTS, TOKENIZER
from remask.models.checkpoints.inputs_file import inputs_folder, read_inputs
from remask.models.config import from_mapping
from remask.models.text.prompts import load_tokenizer
from remask.pipeline.inputs.image_edit import EditInputs
from remask.pipeline.inputs.reader import Inputs, Reader
from remask.pipeline.inputs.sudoku import SudokuInputs
from remask.pipeline.inputs.text import TextInputs

KINDS: dict[str, type[Inputs]] = {
    "sudoku": SudokuInputs,
    "text": TextInputs,
    "image_edit": EditInputs,
}
PUBLISHED_BUCKET = 64
"""Rows of published text models are padded with end tokens to a multiple of this many tokens."""


def open_reader(path_or_name: str | os.PathLike[str], backbone: Backbone) -> Reader:
    """What reads the inputs of a checkpoint.

    Raises ValueError if nothing says how, or if what says so does not fit the model.
    """
    folder = inputs_folder(path_or_name)
    inputs = load_inputs(path_or_name)
    if inputs is None and isinstance(backbone, SudokuMDM):
        inputs = inputs_from({"kind": "sudoku", "side": backbone.config.side}, str(path_or_name))
    if inputs is None and any((folder / name).is_file() for name in TOKENIZER):
        inputs = _published_text(folder)
    if inputs is None:
        raise CheckpointError(
            f"{path_or_name} does not say how its inputs are read: it has no {INPUTS} and no "
            "tokenizer beside its weights; `python -m remask.training.add_inputs` writes them for "
            "a model that was trained before"
        )
    return inputs.reader(str(folder), backbone)


def load_inputs(path_or_name: str | os.PathLike[str]) -> Inputs | None:
    """What a checkpoint's inputs.json says; None if it has none.

    Raises CheckpointError if it says what no version of ours would write.
    """
    values = read_inputs(path_or_name)
    if values is None:
        return None
    return inputs_from(values, str(inputs_folder(path_or_name) / INPUTS))


def inputs_from(values: dict[str, Any], where: str) -> Inputs:
    """The section `source` of an inputs.json; `where` is for errors."""
    kind = values.get("kind")
    if kind not in list(KINDS):
        raise CheckpointError(f"{where}: kind must be one of {list(KINDS)}, got {kind!r}")
    try:
        return from_mapping(KINDS[str(kind)], values, f"{where}: source")
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _published_text(folder: Path) -> TextInputs:
    """A published text model, which has a chat template if its tokenizer says so."""
    tokenizer = load_tokenizer(str(folder.absolute()))
    return TextInputs(
        chat=tokenizer.has_chat,
        append_eos=tokenizer.eos_id is not None,
        eos_bucket=PUBLISHED_BUCKET if tokenizer.eos_id is not None else None,
    )
