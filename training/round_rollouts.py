"""The rollouts of a run with rounds: each round's data, as soon as its model is there.

`remask train` runs this beside DeepSpeed's launcher. Where the launcher is called directly, or
rollout workers have hosts of their own, start it with the same recipe and overrides; both sides
need the run's output folder. One Ray session serves all rounds. Kill it at any time and start it
again: it does what is missing.

    python -m remask.training.round_rollouts RECIPE
    ray job submit --working-dir . -- python -m remask.training.round_rollouts RECIPE
"""

import argparse
import json
import os
import sys
import time

from remask.pipeline import rollout
from remask.pipeline.runtime.jobs import JobError, ray_session
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.provenance import RECIPE, read_json
from remask.pipeline.runtime.recipes import RECIPE_HELP, load_recipe
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import say
from remask.training.recipe import TrainRecipe
from remask.training.rounds import model_folder
from remask.training.run.lifeline import COMMAND, end_with_parent
from remask.training.run.rounds import POLL_S, has_data
from remask.training.train import say_why


def run(recipe: TrainRecipe) -> None:
    """Make the data of all rounds, each once its model is there, to the last round.

    Raises:
        ValueError: The recipe has no rounds, or others than the run in its output, or a round's
            decodes cannot be made.
        StorageError, JobError: A round failed; starting again continues it.
    """
    if recipe.rounds is None:
        raise ValueError("the recipe has no rounds; `remask train` needs no rollouts for it")
    _await_claim(recipe)
    missing = [x for x in range(recipe.num_rounds) if not has_data(recipe, x)]
    if not missing:
        return
    with ray_session(recipe.round_recipe(0).run.workers):
        for number in missing:
            _await_model(recipe, recipe.rounds.model_of(number))
            summary = rollout.run(recipe.round_recipe(number))
            if summary.note:
                say(f"round {number}: {summary.note}", to_stderr=True)


def _await_claim(recipe: TrainRecipe) -> None:
    """Wait until the trainer has claimed the output, and check that it has the same rounds."""
    storage = Storage(recipe.output)
    while not storage.exists(RECIPE):
        time.sleep(POLL_S)
    if read_json(storage, RECIPE).get("rounds") != json.loads(json.dumps(recipe.content["rounds"])):
        raise ValueError(
            f"{storage.uri} holds a run with other rounds; choose another output, or go back to "
            "that recipe"
        )


def _await_model(recipe: TrainRecipe, number: int) -> None:
    """Wait for the model that a round begins with; the start model is there from the first."""
    while number and not model_folder(recipe.rounds_folder, number).is_dir():
        time.sleep(POLL_S)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask.training.round_rollouts",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("recipe", help=RECIPE_HELP)
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    arguments = parser.parse_intermixed_args(argv)
    if os.environ.get(COMMAND) == str(os.getppid()):
        end_with_parent()
    keep_memory()
    try:
        run(load_recipe(TrainRecipe, arguments.recipe, arguments.overrides))
    except (ValueError, StorageError, JobError) as error:
        say_why(f"rollouts: {error}")
        raise SystemExit(2 if isinstance(error, ValueError) else 1) from None
    except KeyboardInterrupt:
        print("remask train: rollouts stopped; run it again to continue", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
