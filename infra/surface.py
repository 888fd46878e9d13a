"""The stages as Python functions, which `import remask` offers: build, train, evaluate, report.

Each runs what its command runs and raises what the command prints. A recipe is a path, the name of
a packaged recipe, a mapping, or its dataclass; keywords override its keys, with `__` for the dot:

    shards = remask.build("sudoku4", output="data", source__train=1000, run__workers=0)
    model = remask.train("sudoku4", shards="data", output="run", steps=200)
    scores = remask.evaluate("sudoku4", checkpoints__rm="run/model", output="scores")
    page = remask.report("scores")

A key that is no Python name goes by a dictionary: `**{"suites.my-boards.seed": 7}`. Modules of the
stages are imported when a function is called.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from remask.evaluation.recipe import EvalRecipe
    from remask.models import Backbone
    from remask.pipeline.recipe import BuildRecipe
    from remask.training.recipe import TrainRecipe


def build(
    recipe: "str | os.PathLike[str] | Mapping[str, Any] | BuildRecipe", /, **overrides: Any
) -> "pl.LazyFrame":
    """Build the trajectory shards of a recipe that are missing, as `remask build` does.

    Args:
        recipe: A path, a packaged recipe's name, a mapping or a `BuildRecipe`.
        **overrides: Values of keys, as in `source__train=1000`. `run__workers=0` builds in this
            process, without Ray.

    Returns:
        The manifest, a row per shard.

    Raises ValueError for a wrong request, `StorageError` or `JobError` for a failed run.
    """
    from remask.pipeline.build import run
    from remask.pipeline.format.manifest import open_manifest
    from remask.pipeline.recipe import BuildRecipe
    from remask.pipeline.runtime.memory import keep_memory
    from remask.pipeline.runtime.recipes import make_recipe

    settings = make_recipe(BuildRecipe, recipe, overrides)
    keep_memory()
    run(settings)
    return open_manifest(settings.output)


def train(
    recipe: "str | os.PathLike[str] | Mapping[str, Any] | TrainRecipe",
    /,
    *,
    ranks: int | None = None,
    **overrides: Any,
) -> "Backbone":
    """Train a recipe's model to its last step by DeepSpeed's launcher, as `remask train` does.

    Args:
        recipe: A path, a packaged recipe's name, a mapping or a `TrainRecipe`.
        ranks: Processes on this machine. Defaults to one per GPU, or one.
        **overrides: Values of keys, as in `optimizer__lr=0.01`.

    Returns:
        The trained model on the CPU, read from OUTPUT/model.

    Raises ValueError for a wrong request, `TrainingError` if the run failed or was stopped; call it
    again to continue.
    """
    from remask.models import load
    from remask.pipeline.runtime.recipes import make_recipe
    from remask.training.launch import run
    from remask.training.recipe import TrainRecipe

    return load(run(make_recipe(TrainRecipe, recipe, overrides), ranks).model)


def evaluate(
    recipe: "str | os.PathLike[str] | Mapping[str, Any] | EvalRecipe", /, **overrides: Any
) -> "pl.DataFrame":
    """Decode and score what is missing of an evaluation, as `remask eval` does.

    Args:
        recipe: A path, a packaged recipe's name, a mapping or an `EvalRecipe`.
        **overrides: Values of keys, as in `checkpoints__rm="run/model"`. `run__workers=0` decodes
            in this process, without Ray.

    Returns:
        The scores, a row per suite, checkpoint, decoder and metric, with their intervals.

    Raises ValueError for a wrong request, `StorageError` or `JobError` for a failed run.
    """
    from remask.evaluation.evaluate import evaluate as run
    from remask.evaluation.recipe import EvalRecipe
    from remask.pipeline.runtime.memory import keep_memory
    from remask.pipeline.runtime.recipes import make_recipe

    settings = make_recipe(EvalRecipe, recipe, overrides)
    keep_memory()
    return run(settings)[1]


def report(
    folder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
) -> str:
    """Write one HTML page of evaluations, as `remask report` does.

    Args:
        folder: Output of `evaluate`, or several.
        output: File to write. Defaults to report.html in the first folder.

    Returns:
        Where the page is.

    Raises ValueError for a wrong request, `StorageError` if a folder cannot be read or written.
    """
    from remask.evaluation.report.make import write_report

    folders = [folder] if isinstance(folder, str | os.PathLike) else folder
    file = None if output is None else os.fspath(output)
    return write_report([os.fspath(x) for x in folders], file)
