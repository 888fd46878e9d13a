"""What the stages' commands share: arguments, errors, exit status, summary."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pipeline.jobs import JobError
from pipeline.memory import keep_memory
from pipeline.plain_yaml import write_yaml
from pipeline.progress import Summary
from pipeline.recipe import BuildRecipe, load_recipe
from pipeline.storage import StorageError
from pipeline.terminal import fail, say


def main_for(
    verb: str,
    description: str | None,
    run: Callable[[Any], Summary],
    plan: Callable[[Any], Sequence[Any]],
    argv: list[str] | None,
    kind: type = BuildRecipe,
) -> None:
    """Parse, load the recipe, run the stage. Exit 2 for a wrong request, 1 for a failed run."""
    parser = argparse.ArgumentParser(
        prog=f"remask {verb}",
        description=description,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("recipe", help="a YAML file")
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
    except ValueError as error:
        fail(f"remask {verb}", 2, error)
    except (StorageError, JobError) as error:
        fail(f"remask {verb}", 1, error)
    except KeyboardInterrupt:
        print(f"remask {verb}: stopped; run it again to go on", file=sys.stderr)
        raise SystemExit(130) from None


def plain(recipe: Any) -> Any:
    """A recipe as plain values, as YAML and JSON hold them."""
    return json.loads(json.dumps(dataclasses.asdict(recipe)))
