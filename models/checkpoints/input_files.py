"""The files in a model's folder that say how its inputs are read, besides config and weights.

    inputs.json                     what kind of input, by which templates (`inputs_file.py`)
    tokenizer.json ...              text: the tokenizer's files, as published models have them
    image_tokenizer/config.json ... image edits: the image tokeniser

A data set has the same files, from which training copies them.
"""

from collections.abc import Mapping
from pathlib import Path

from remask.models.checkpoints.folder import CONFIG, SUMS, CheckpointError

INPUTS, IMAGES = "inputs.json", "image_tokenizer"
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
)
IMAGE_TOKENIZER = tuple(
    f"{IMAGES}/{name}"
    for name in (CONFIG, "model.safetensors", "diffusion_pytorch_model.safetensors", SUMS)
)
NAMES = (INPUTS, *TOKENIZER, *IMAGE_TOKENIZER)
"""All names that these files may have, relative to the folder."""

InputFiles = Mapping[str, bytes]
"""Contents by name, each of `NAMES`."""


def read_input_files(folder: Path) -> dict[str, bytes]:
    """Those of the files that a folder has."""
    return {name: (folder / name).read_bytes() for name in NAMES if (folder / name).is_file()}


def has_input_files(folder: Path) -> bool:
    """Does a folder say how its inputs are read, in inputs.json or by a tokenizer?"""
    return any((folder / name).is_file() for name in (INPUTS, *TOKENIZER))


def write_input_files(folder: Path, files: InputFiles) -> None:
    """Write the files into a folder that exists."""
    unknown = sorted(set(files) - set(NAMES))
    if unknown:
        raise CheckpointError(f"{unknown[0]!r} is no file that describes inputs: {list(NAMES)}")
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
