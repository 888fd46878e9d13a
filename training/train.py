"""Trajectory shards → a model that revises, one rank of it: DeepSpeed's launcher starts this.

Kill it anywhere and start it again: it goes on from its last checkpoint as if nothing had happened.

    remask train training/recipes/sudoku.yaml                        # sized for this machine
    deepspeed --module training.train training/recipes/sudoku.yaml
    deepspeed --hostfile hosts --module training.train RECIPE batch_size=512
"""

import argparse
import contextlib
import sys
from typing import NoReturn

import yaml

from pipeline.command import plain
from pipeline.memory import keep_memory
from pipeline.recipe import load_recipe
from pipeline.storage import StorageError
from training.recipe import TrainRecipe
from training.world import TrainingError, World


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="training.train",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    arguments = parser.parse_intermixed_args(argv)
    keep_memory()
    try:
        run(arguments.recipe, arguments.overrides, dry_run=arguments.dry_run)
    finally:
        World.from_environment().leave()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved recipe and plan")


def run(path: str, overrides: list[str], *, dry_run: bool) -> None:
    """Train; exit 2 for a wrong request, 1 for a failed run."""
    from training.plan import make_plan
    from training.trainer import prepared, train

    world = World.from_environment()
    with contextlib.ExitStack() as stack:
        try:
            recipe = load_recipe(TrainRecipe, path, overrides)
            if dry_run:
                plan = make_plan(recipe, world)
                print(yaml.safe_dump(plain(recipe), sort_keys=False), end="")
                print(
                    f"# train: {plan.steps} steps, {plan.train.num_rows} rows, {world.size} ranks"
                )
                return
            plan, folder = stack.enter_context(prepared(recipe, world))
        except ValueError as error:
            _exit(2, error, world)
        except StorageError as error:
            _exit(1, error, world)
        try:
            outcome = train(plan, folder, world)
        except (ValueError, StorageError, TrainingError) as error:
            where = f"rank {world.rank}: " if world.size > 1 else ""
            print(f"remask train: {where}{error}", file=sys.stderr)
            raise SystemExit(1) from error
        if world.is_first:
            print(outcome)


def _exit(status: int, error: Exception, world: World) -> NoReturn:
    if world.is_first:  # the others found the same
        print(f"remask train: {error}", file=sys.stderr)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
