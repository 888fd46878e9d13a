"""What a source says about its inputs, and the files that a data set and a model keep of it.

A build writes them to `inputs/` of the data set, where training finds them; so a model describes
its inputs even if the tokenizer has moved since.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from remask.models.checkpoints.input_files import (
    IMAGES,
    INPUTS,
    NAMES,
)
from remask.models.checkpoints.inputs_file import inputs_json
from remask.models.images.tokenizer_folder import tokenizer_files
from remask.models.text.prompts import load_tokenizer
from remask.pipeline.edits import FilePairs
from remask.pipeline.edits.text import PublishedText
from remask.pipeline.inputs.characters import character_tokenizer, saved_files
from remask.pipeline.inputs.image_edit import EditInputs, PictureSize
from remask.pipeline.inputs.reader import Inputs
from remask.pipeline.inputs.sudoku import SudokuInputs
from remask.pipeline.inputs.text import MAX_LENGTH, TextInputs
from remask.pipeline.runtime.places import without_places
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.sources.countdown import ALPHABET, END, MASK, CountdownSource
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.source import Source
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource

FOLDER = "inputs"
"""Subfolder of a data set."""
Files = dict[str, bytes]


def describe(source: Source) -> Files | None:
    """The files that say how inputs like a source's examples are read, by name.

    None for a source of a kind that has no reader.

    Raises ValueError if its tokenizer cannot be read.
    """
    of = DESCRIPTIONS.get(type(source))
    if of is None:
        return None
    inputs, files = of(source)
    return {INPUTS: inputs_json(plain(inputs)), **files}


def plain(inputs: Inputs) -> dict[str, Any]:
    """The section `source` of inputs.json."""
    values = dataclasses.asdict(inputs)  # pyright: ignore[reportArgumentType]
    return {name: value for name, value in values.items() if value is not None}


def write_description(storage: Storage, source: Source) -> None:
    """Write a source's files into a data set, unless they are there; inputs.json comes last."""
    if storage.exists(f"{FOLDER}/{INPUTS}"):
        return
    files = describe(source) or {}
    for name in sorted(files, key=lambda name: name == INPUTS):
        storage.write(f"{FOLDER}/{name}", files[name])


def read_description(storage: Storage) -> Files | None:
    """The files that `write_description` wrote; None if there are none."""
    if not storage.exists(f"{FOLDER}/{INPUTS}"):
        return None
    inner = storage.names(f"{FOLDER}/{IMAGES}")
    present = storage.names(FOLDER) | {f"{IMAGES}/{name}" for name in inner}
    return {name: storage.read(f"{FOLDER}/{name}") for name in NAMES if name in present}


def _of_sudoku(source: SudokuSource) -> tuple[Inputs, Files]:
    return SudokuInputs(side=source.side), {}


def _of_countdown(source: CountdownSource) -> tuple[Inputs, Files]:
    """All rows have one length, so they are padded to it."""
    inputs = TextInputs(max_length=source.length, eos_bucket=source.length)
    return inputs, character_tokenizer(ALPHABET, MASK, END)


def _of_text(source: TextSource) -> tuple[Inputs, Files]:
    values = {f.name: getattr(source, f.name) for f in dataclasses.fields(TextInputs)}
    values["max_length"] = min(source.max_length, MAX_LENGTH)
    values["eos_bucket"] = min(source.eos_bucket, MAX_LENGTH) if source.eos_bucket else None
    inputs = TextInputs(**values)
    return inputs, saved_files(source.read_tokenizer().inner)


def _of_edits(source: ImageEditSource) -> tuple[Inputs, Files]:
    pairs = source.pairs
    if isinstance(pairs, FilePairs):
        step = pairs.step if pairs.shape == "own" else None
        size = PictureSize(height=pairs.height, width=pairs.width, step=step)
    else:
        size = PictureSize(height=pairs.size[0], width=pairs.size[1])
    inputs = EditInputs(
        size=size,
        text=without_places(source.text),
        words=pairs.words() if source.text.is_by_word else (),
        source_in=source.source_in,
    )
    files = {f"{IMAGES}/{x.name}": x.read_bytes() for x in tokenizer_files(source.tokenizer)}
    if isinstance(source.text, PublishedText):
        files |= saved_files(load_tokenizer(source.text.tokenizer, adds="nothing").inner)
    return inputs, files


DESCRIPTIONS: dict[type, Callable[[Any], tuple[Inputs, Files]]] = {
    SudokuSource: _of_sudoku,
    CountdownSource: _of_countdown,
    TextSource: _of_text,
    ImageEditSource: _of_edits,
}
"""What describes each type of source."""
