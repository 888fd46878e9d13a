"""Edit a picture with a checkpoint: a picture and an instruction in, the edited picture out.

This is the short form of `remask revise --picture`, with guidance. How pictures and words become
tokens is said by the checkpoint's inputs.json or, for a checkpoint without one, by the recipe that
its data were built with. With `source_in: canvas` the picture is revised; with `source_in: prompt`
an empty canvas is filled in.

    remask edit scene.png "make the mouse green"
    remask edit scene.png "make the mouse green" --checkpoint runs/emoji/rm-0/model \\
        --recipe emoji_rm --output edited.png --mask remasked.png
    remask edit photo.jpg "Remove the car." --checkpoint runs/imgedit/rm/model \\
        --recipe imgedit_rm --output edited.png --preset released
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from remask.evaluation.decoder import Decoder
from remask.infra.reviser import shipped_model
from remask.models import Backbone, CheckpointError, load
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.checkpoints.input_files import INPUTS
from remask.models.checkpoints.inputs_file import inputs_folder
from remask.models.config import from_mapping
from remask.models.images.guidance import NoImage
from remask.pipeline.edits.images import ImageFile, Picture, to_png
from remask.pipeline.inputs.image_edit import EditInputs, EditReader
from remask.pipeline.inputs.registry import load_inputs
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import complain, fail, say
from remask.pipeline.sources.image_edit import ImageEditSource

FILL_STEPS = 16
"""Default number of steps in which an empty canvas is filled."""


@dataclass(frozen=True)
class Edit:
    """An edited picture, and what was re-masked to get it."""

    picture: Picture
    mask: Picture
    """White where a cell was re-masked, black elsewhere; of the picture's size."""
    cells: int
    remasked: int
    forward_passes: int


def edit_picture(
    backbone: Backbone, edits: ImageEditSource, file: ImageFile, instruction: str, decoder: Decoder
) -> Edit:
    """Carry out an instruction on a picture.

    Raises ValueError if the instruction is too long for the model.
    """
    start = EditReader(edits, backbone).start_edit(file, instruction)
    revision = decoder.revise(backbone, start.tokens[None], start.editable[None])
    shape = (-1, start.columns or 1)
    canvas = revision.tokens[0, start.shown].view(shape) - edits.layout.image.code_offset
    remasked = revision.edit_mask()[0, start.shown].view(shape).numpy()
    white = np.where(remasked, 255, 0).astype(np.uint8).repeat(edits.patch, 0)
    return Edit(
        edits.decode([canvas])[0],
        white.repeat(edits.patch, 1),
        remasked.size,
        int(remasked.sum()),
        int(revision.stats.forward_passes[0]),
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask edit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("picture", help="image file of any format; cropped to the recipe's size")
    parser.add_argument("instruction", help="what to change, in words")
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    parser.add_argument(
        "--checkpoint", help="folder of an image-edit model (default: the packaged one)"
    )
    parser.add_argument(
        "--recipe",
        help="build recipe of its data: a file or a packaged name (default: what the checkpoint's\n"
        "inputs.json says)",
    )
    parser.add_argument("--output", default="edited.png", help="PNG to write (default: edited.png)")
    parser.add_argument("--mask", help="PNG to write with the re-masked cells in white")
    parser.add_argument(
        "--preset",
        choices=sorted(Decoder.PRESETS),
        help="decoding settings (default: paper)",
    )
    parser.add_argument(
        "--max-steps", type=int, help="limit of decoding steps (default: the preset's)"
    )
    parser.add_argument(
        "--text-guidance", type=float, help="scale s_t of text guidance (default: the preset's)"
    )
    parser.add_argument(
        "--image-guidance", type=float, help="scale s_i of image guidance (default: the preset's)"
    )
    parser.add_argument(
        "--no-image",
        choices=get_args(NoImage),
        help="what image guidance contrasts with: the source masked (default), or absent",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of random decoders (default: 0)")
    arguments = parser.parse_intermixed_args(argv)
    try:
        checkpoint = arguments.checkpoint or shipped_model("image_edit")
        edits = _edits(checkpoint, arguments.recipe, arguments.overrides)
        decoder = _decoder(arguments, edits)
        file = ImageFile.read(read_bytes(arguments.picture), arguments.picture)
        backbone = load(
            checkpoint,
            device="cuda" if torch.cuda.is_available() else "cpu",
            history=trained_history(checkpoint),
        )
        edits.check_model(backbone)
        unknown = edits.unknown_words(arguments.instruction)
        if unknown:
            complain("remask edit", f"the model has no token for {', '.join(unknown)}")
        edit = edit_picture(backbone, edits, file, arguments.instruction, decoder)
        for path, picture in ((arguments.output, edit.picture), (arguments.mask, edit.mask)):
            if path is not None:
                write_png(path, to_png(picture))
    except (CheckpointError, ValueError) as error:
        fail("remask edit", 2, error)
    except StorageError as error:
        fail("remask edit", 1, error)
    say(
        f"{arguments.output}: {edit.remasked} of {edit.cells} cells re-masked, "
        f"{edit.forward_passes} forward passes"
    )


def _edits(checkpoint: str, recipe: str | None, overrides: list[str]) -> ImageEditSource:
    """How pictures and words become tokens: by a recipe if one is given."""
    if recipe is not None:
        edits = load_recipe(BuildRecipe, recipe, overrides).source
        if not isinstance(edits, ImageEditSource):
            raise ValueError(f"{recipe} builds {edits.kind}, not image_edit")
        return edits
    if overrides:
        raise ValueError(f"{overrides[0]!r} overrides a key of a recipe; name one with --recipe")
    inputs = load_inputs(checkpoint)
    if inputs is None:
        raise ValueError(
            f"{checkpoint} has no {INPUTS}; name the build recipe of its data with --recipe"
        )
    if not isinstance(inputs, EditInputs):
        raise ValueError(f"{checkpoint} takes inputs of kind {inputs.kind}, not image_edit")
    return inputs.source(str(inputs_folder(checkpoint)))


def _decoder(arguments: argparse.Namespace, edits: ImageEditSource) -> Decoder:
    values: dict[str, Any] = {"preset": arguments.preset or "paper", "seed": arguments.seed}
    if edits.source_in == "prompt":
        if arguments.preset is not None:
            raise ValueError(
                f"--preset {arguments.preset} revises a picture, but the recipe has "
                "source_in: prompt; leave --preset out, or use a recipe with source_in: canvas"
            )
        values = {"policy": "absorbing", "max_steps": FILL_STEPS, "seed": arguments.seed}
    if arguments.max_steps is not None:
        values["max_steps"] = arguments.max_steps
    guidance = {
        "text": arguments.text_guidance,
        "image": arguments.image_guidance,
        "no_image": arguments.no_image,
    }
    given = {name: value for name, value in guidance.items() if value is not None}
    if given:
        values["guidance"] = given
    return from_mapping(Decoder, values, "decoder")


def read_bytes(path: str) -> bytes:
    """The content of a file; ValueError if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a NUL byte
        raise ValueError(f"cannot read {path!r}: {error}") from error


def write_png(path: str, data: bytes) -> None:
    """Write a PNG file, whole or not at all."""
    place = Path(path)
    Storage(str(place.parent)).write(place.name, data)


if __name__ == "__main__":
    main()
