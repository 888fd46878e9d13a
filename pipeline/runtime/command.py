"""The common part of the stages' commands: arguments, errors, exit status, summary."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.ending import say_next
from remask.pipeline.runtime.jobs import JobError
from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.plain_yaml import write_yaml
from remask.pipeline.runtime.progress import Summary
from remask.pipeline.runtime.recipes import RECIPE_HELP, load_recipe
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import fail, say


def main_for(
    verb: str,
    description: str | None,
    run: Callable[[Any], Summary],
    plan: Callable[[Any], Sequence[Any]],
    argv: list[str] | None,
    kind: type = BuildRecipe,
    advise: Callable[[Any, str], str] = lambda recipe, name: "",
) -> None:
    """Parse the arguments, load the recipe and run a stage.

    Args:
        verb: Name of the command.
        description: Its help text.
        run: Runs the stage.
        plan: Lists the units of work, for `--dry-run`.
        argv: Arguments; defaults to those of the process.
        kind: Dataclass of the recipe.
        advise: What to do next, from the recipe and its name as it was typed.

    Raises:
        SystemExit: With status 2 for a wrong request, 1 for a failed run.
    """
    parser = argparse.ArgumentParser(
        prog=f"remask {verb}",
        description=description,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("recipe", help=RECIPE_HELP)
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved recipe and plan")
    arguments = parser.parse_intermixed_args(argv)
    try:
        recipe = load_recipe(kind, arguments.recipe, arguments.overrides)
        if arguments.dry_run:
            units = plan(recipe)
            print(write_yaml(plain(recipe)), end="")
            print(f"# {verb}: {len(units)} units")
            return
        keep_memory()
        say(run(recipe))
        say_next(advise(recipe, arguments.recipe))
    except ValueError as error:
        fail(f"remask {verb}", 2, error)
    except (StorageError, JobError) as error:
        fail(f"remask {verb}", 1, error)
    except KeyboardInterrupt:
        print(f"remask {verb}: stopped; run it again to continue", file=sys.stderr)
        raise SystemExit(130) from None


def plain(recipe: Any) -> Any:
    """A recipe as values of the types that YAML and JSON have."""
    return json.loads(json.dumps(dataclasses.asdict(recipe)))
