"""The files that say how a trained model's inputs are read, from where training can find them.

A data set has them in `inputs/`. One that was built before there were any still has its recipe,
which is enough unless a tokenizer is needed; then a checkpoint to start from may have them.
"""

from collections.abc import Iterator

from remask.models.checkpoints.input_files import has_input_files, read_input_files
from remask.models.checkpoints.inputs_file import inputs_folder
from remask.models.config import from_mapping
from remask.pipeline.inputs.describe import Files, describe, read_description
from remask.pipeline.runtime.provenance import RECIPE, read_json
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.sources.countdown import CountdownSource
from remask.pipeline.sources.source import Source
from remask.pipeline.sources.sudoku import SudokuSource
from remask.training.recipe import TrainRecipe

WITHOUT_FILES = {"sudoku": SudokuSource, "countdown": CountdownSource}
"""Sources that are described without any file of theirs, by kind."""


def find_inputs(recipe: TrainRecipe) -> tuple[Files | None, str | None]:
    """The files for the model of a recipe, and a note for people if there are none."""
    reasons: list[str] = []
    for files in _candidates(recipe, reasons):
        if files is not None:
            return files, None
    why = f" ({reasons[0]})" if reasons else ""
    return None, (
        f"the model will have no inputs.json: its data do not say how inputs are read{why}; "
        "`python -m remask.training.add_inputs` can add it later"
    )


def _candidates(recipe: TrainRecipe, reasons: list[str]) -> Iterator[Files | None]:
    """What may describe the inputs, the best first; what cannot be read adds a reason."""
    for shards in recipe.shard_sets:
        try:
            yield _of_data_set(Storage(shards.uri))
        except (ValueError, StorageError) as error:
            reasons.append(str(error))
    if recipe.rounds is not None:
        try:
            yield describe(recipe.round_recipe(0).source)
        except (ValueError, StorageError) as error:
            reasons.append(str(error))
    if recipe.start is not None:
        folder = inputs_folder(recipe.start)
        yield read_input_files(folder) if has_input_files(folder) else None


def _of_data_set(storage: Storage) -> Files | None:
    return read_description(storage) or _from_recipe(storage)


def _from_recipe(storage: Storage) -> Files | None:
    """The description of an older data set by its recipe, if it needs no file of the source."""
    if not storage.exists(RECIPE):
        return None
    values = read_json(storage, RECIPE).get("source")
    kind = WITHOUT_FILES.get(str(values.get("kind"))) if isinstance(values, dict) else None
    if kind is None:
        return None
    source: Source = from_mapping(kind, values, f"{storage.path(RECIPE)}: source")
    return describe(source)
