"""Say how a model's inputs are read, for a model that was trained before models said so.

The recipe is the one that the model's data were built with; its source is all that is used.

    python -m remask.training.add_inputs runs/emoji/rm-0/model emoji_rm
    python -m remask.training.add_inputs runs/sums/her-0/model sums
"""

import argparse
import tempfile
from pathlib import Path

from remask.models.checkpoints.checkpoint import outline
from remask.models.checkpoints.folder import SUMS, CheckpointError, write_sealed
from remask.models.checkpoints.input_files import INPUTS, write_input_files
from remask.models.checkpoints.inputs_file import parse_inputs
from remask.models.checkpoints.shipped import checkpoint_folder
from remask.pipeline.inputs.describe import describe
from remask.pipeline.inputs.registry import inputs_from
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import RECIPE_HELP, load_recipe
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, say
from remask.pipeline.sources.source import Source


def add_inputs(model: str, source: Source) -> Path:
    """Write the files that describe a source's inputs into a model's folder; inputs.json is last.

    Raises ValueError if they do not fit the model.
    """
    folder, files = checkpoint_folder(model), describe(source)
    if files is None:
        raise ValueError(f"a source of kind {source.kind} has no description of its inputs")
    backbone = outline(folder)
    with tempfile.TemporaryDirectory() as aside:
        write_input_files(Path(aside), files)
        inputs_from(parse_inputs(files[INPUTS], INPUTS), INPUTS).reader(aside, backbone)
    for name in sorted(files, key=lambda name: name == INPUTS):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if path.name != SUMS:  # `write_sealed` writes those
            write_sealed(path, files[name])
    return folder / INPUTS


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask.training.add_inputs",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("model", help="folder of a model that training wrote")
    parser.add_argument("recipe", help=f"build recipe of its data: {RECIPE_HELP}")
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    arguments = parser.parse_intermixed_args(argv)
    try:
        recipe = load_recipe(BuildRecipe, arguments.recipe, arguments.overrides)
        path = add_inputs(arguments.model, recipe.source)
    except (CheckpointError, ValueError) as error:
        fail("remask.training.add_inputs", 2, error)
    except (OSError, StorageError) as error:
        fail("remask.training.add_inputs", 1, error)
    say(f"written: {path}")


if __name__ == "__main__":
    main()
