"""Trajectory shards → a model that revises. DeepSpeed's launcher starts this on every rank.

Kill it at any time and start it again: it resumes from its last checkpoint.

    remask train training/recipes/sudoku.yaml                        # sized for this machine
    deepspeed --module remask.training.train training/recipes/sudoku.yaml
    deepspeed --hostfile hosts --module remask.training.train RECIPE batch_size=512
"""

import argparse
import contextlib
import os
import time
from typing import NoReturn

from remask.pipeline.runtime.memory import keep_memory
from remask.pipeline.runtime.recipes import RECIPE_HELP, load_recipe
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import complain, say
from remask.training.recipe import TrainRecipe
from remask.training.run.lifeline import end_with_launcher
from remask.training.world import TrainingError, World

FAILURE = "REMASK_TRAIN_FAILURE"
"""Environment variable with the file that takes the reason why a run ends."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask.training.train",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    arguments = parser.parse_intermixed_args(argv)
    if arguments.dry_run:
        return dry_run(arguments, World.from_environment().size)
    refuse_planning(arguments)
    end_with_launcher()
    keep_memory()
    try:
        run(arguments.recipe, arguments.overrides)
    finally:
        World.from_environment().leave()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help=RECIPE_HELP)
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the resolved recipe, the plan, the memory of a rank and the GPU hours; needs\n"
        "only the config.json of a checkpoint to start from",
    )
    parser.add_argument(
        "--length", type=int, help="with --dry-run: tokens of a row, if shards are not built yet"
    )
    parser.add_argument(
        "--gpu-memory", type=float, metavar="GB", help="with --dry-run: say whether it fits"
    )
    parser.add_argument(
        "--gpu-tflops",
        type=float,
        metavar="TFLOPS",
        help="with --dry-run: peak speed of a GPU (default: 989, an H100 in bf16)",
    )
    parser.add_argument(
        "--utilisation",
        type=float,
        metavar="SHARE",
        help="with --dry-run: share of the peak that is reached (default: 0.3)",
    )


def dry_run(arguments: argparse.Namespace, ranks: int) -> None:
    """Print what would be done on a number of ranks; exit 2 for a wrong request."""
    from remask.training.compute_estimate import Speed
    from remask.training.dry_run import Machine, describe

    try:
        recipe = load_recipe(TrainRecipe, arguments.recipe, arguments.overrides)
        given = {"gpu_tflops": arguments.gpu_tflops, "utilisation": arguments.utilisation}
        speed = Speed(**{name: value for name, value in given.items() if value is not None})
        machine = Machine(ranks, arguments.length, arguments.gpu_memory, speed)
        for line in describe(recipe, machine).split("\n"):
            say(line)
    except ValueError as error:
        _exit(2, error)
    except StorageError as error:
        _exit(1, error)


def refuse_planning(arguments: argparse.Namespace) -> None:
    """Exit 2 if options of a dry run are given without one."""
    for option in ("length", "gpu_memory", "gpu_tflops", "utilisation"):
        if getattr(arguments, option) is not None:
            name = f"--{option.replace('_', '-')}"
            _exit(2, ValueError(f"{name} is for --dry-run; add that, or leave {name} out"))


def run(path: str, overrides: list[str]) -> None:
    """Train; exit 2 for a wrong request, 1 for a failed run."""
    from remask.training.trainer import prepared, train

    world, started = World.from_environment(), time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            recipe = load_recipe(TrainRecipe, path, overrides)
            plan, folder = stack.enter_context(prepared(recipe, world))
        except ValueError as error:
            _exit(2, error)
        except StorageError as error:
            _exit(1, error)
        try:
            outcome = train(plan, folder, world)
        except (ValueError, StorageError, TrainingError) as error:
            where = f"rank {world.rank}: " if world.size > 1 else ""
            say_why(f"{where}{error}")
            raise SystemExit(1) from error
        if world.is_first:
            say(outcome.after(time.monotonic() - started))


def _exit(status: int, error: Exception) -> NoReturn:
    if World.from_environment().is_first:  # the other ranks fail for the same reason
        say_why(error)
    raise SystemExit(status)


def say_why(error: object) -> None:
    """Print why the run ends; the first process to do so writes it for the launcher as well."""
    complain("remask train", error)
    if FAILURE in os.environ:
        text = str(error).encode(errors="replace")
        with contextlib.suppress(OSError), open(os.environ[FAILURE], "xb") as file:
            file.write(text)  # unless another process has, or the disk is full


if __name__ == "__main__":
    main()
