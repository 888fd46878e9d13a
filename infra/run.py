"""All stages of a recipe, one after the other, on this machine or the cluster RAY_ADDRESS names.

A recipe lists commands. Each does only what is missing, so a run that was stopped goes on where it
was. `VERB.key=value` changes a key in every stage of that verb. All recipes are checked before the
first stage begins.

    remask run infra/recipes/sudoku4.yaml
    remask run infra/recipes/sudoku9.yaml train.engine.precision=fp32
    remask run infra/recipes/sudoku4.yaml --dry-run
"""

import argparse
import pkgutil
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.runtime.terminal import fail, make_console, say, visible
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder

MAX_STAGES = 1000
"""All of their recipes are read before the first begins."""
STOPPED = 130
"""Status of what Ctrl-C has ended."""
STAGES = {
    "source": "remask.pipeline.recipe:BuildRecipe",
    "probe": "remask.pipeline.recipe:BuildRecipe",
    "build": "remask.pipeline.recipe:BuildRecipe",
    "vq": "remask.training.vq:VQRecipe",
    "train": "remask.training.recipe:TrainRecipe",
    "merge": None,
    "eval": "remask.evaluation.recipe:EvalRecipe",
    "report": None,
}
"""Verbs, and what their recipe is if they have one."""


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """The stages of a run."""

    stages: tuple[str, ...]
    """Each a verb of `remask` with its arguments, as one would type it."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.stages) <= MAX_STAGES:
            raise ValueError(f"stages must be 1 .. {MAX_STAGES}, got {len(self.stages)}")
        for stage in self.stages:
            try:
                words = shlex.split(stage)
            except ValueError as error:
                raise ValueError(f"stage {stage!r} cannot be read: {error}") from error
            if not words or words[0] not in STAGES:
                raise ValueError(f"a stage begins with one of {list(STAGES)}, got {stage!r}")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe", help="a YAML file that lists stages")
    parser.add_argument("overrides", nargs="*", default=[], metavar="VERB.key=value")
    parser.add_argument("--dry-run", action="store_true", help="check and print the commands")
    arguments = parser.parse_intermixed_args(argv)
    try:
        recipe = load_recipe(RunRecipe, arguments.recipe, [])
        stages = with_overrides(recipe.stages, arguments.overrides)
        recipes = recipes_of(stages)
    except ValueError as error:
        fail("remask run", 2, error)
    console = make_console(to_stderr=True)
    for number, (stage, settings) in enumerate(zip(stages, recipes, strict=True), 1):
        if arguments.dry_run:
            say(shlex.join(["remask", *stage]))
            continue
        command = visible(shlex.join(["remask", *stage]))
        console.print(Text.assemble((f"{number} of {len(stages)}", "bold"), f"  {command}"))
        status = _run(stage)
        if status == 0 and isinstance(settings, TrainRecipe) and not _is_finished(settings):
            status = STOPPED  # it was asked to, and has saved
        if status == STOPPED:
            said = f"remask run: stopped in stage {number}, {stage[0]}"
            print(f"{said}; give the same command again to go on", file=sys.stderr)
            raise SystemExit(STOPPED)
        if status:
            print(
                f"remask run: stage {number}, {stage[0]}, ended with status {status}; mend it and "
                "give the same command again to go on",
                file=sys.stderr,
            )
            raise SystemExit(status if status > 0 else 1)


def with_overrides(stages: tuple[str, ...], overrides: list[str]) -> list[list[str]]:
    """Each stage as arguments, with the overrides of its verb."""
    found = [shlex.split(stage) for stage in stages]
    for override in overrides:
        verb, _, setting = override.partition(".")
        if "=" not in setting or verb not in {stage[0] for stage in found}:
            raise ValueError(
                f"an override is VERB.key=value with a verb of the recipe, got {override!r}"
            )
        for stage in found:
            stage += [setting] * (stage[0] == verb)
    return found


def recipes_of(stages: list[list[str]]) -> list[Any]:
    """What each stage has read when it begins; none for those without a recipe.

    Raises ValueError, naming the stage, where that would fail.
    """
    found = []
    for number, (verb, *arguments) in enumerate(stages, 1):
        words = [x for x in arguments if not x.startswith("-")]
        overrides = [x for x in words if "=" in x]
        paths = [x for x in words if "=" not in x]
        paths.sort(key=lambda x: not x.endswith((".yaml", ".yml")))  # options' values come after
        name = STAGES[verb]
        try:
            recipe = load_recipe(pkgutil.resolve_name(name), paths[0], overrides) if name else None
        except IndexError:
            raise ValueError(f"stage {number}, {verb}, names no recipe") from None
        except ValueError as error:
            raise ValueError(f"stage {number}, {verb}: {error}") from error
        found.append(recipe)
    return found


def _is_finished(recipe: TrainRecipe) -> bool:
    outcome = RunFolder(recipe.output).outcome()
    return outcome is not None and outcome.is_finished


def _run(stage: list[str]) -> int:
    """The status of a stage. Ctrl-C reaches it too, and it ends by itself: training saves, and ends
    well, though it is not done."""
    interrupts = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        status = subprocess.run([sys.executable, "-m", "remask.infra.cli", *stage]).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    return STOPPED if interrupts else status


if __name__ == "__main__":
    main()
