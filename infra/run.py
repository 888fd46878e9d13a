"""All stages of a recipe, one after the other, on this machine or the cluster RAY_ADDRESS names.

A recipe lists commands. Each does only what is missing, so a run that was stopped continues where
it was. `VERB.key=value` changes a key in every stage of that verb. All recipes are checked before
the first stage begins; their names are looked up among those that the file itself holds under
`recipes`, then as paths, then beside the file, then among the packaged ones. A recipe of the file
is also run alone, as `remask train FILE:NAME`, and changed by `NAME.key=value`.

    remask run sudoku4
    remask run sudoku9 train.engine.precision=fp32
    remask run my/recipe.yaml --dry-run
    remask run own.yaml base.steps=1000
"""

import argparse
import os
import pkgutil
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from remask.pipeline.runtime.ending import (
    IN_A_RUN,
    after_model,
    after_shards,
    duration,
    say_next,
)
from remask.pipeline.runtime.recipes import (
    RECIPE_HELP,
    SUFFIX,
    find_recipe,
    load_recipe,
    split_section,
)
from remask.pipeline.runtime.terminal import fail, make_console, say, visible
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder

MAX_STAGES = 1000
"""Limit of the stages of a run, whose recipes are all read before the first stage begins."""
STOPPED = 130
"""Exit status of a command that Ctrl-C ended."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
"""Name of a recipe within a run's own file."""
STAGES = {
    "source": "remask.pipeline.recipe:BuildRecipe",
    "probe": "remask.pipeline.recipe:BuildRecipe",
    "build": "remask.pipeline.recipe:BuildRecipe",
    "rollout": "remask.pipeline.rollout_recipe:RolloutRecipe",
    "vq": "remask.training.vq:VQRecipe",
    "train": "remask.training.recipe:TrainRecipe",
    "merge": None,
    "eval": "remask.evaluation.recipe:EvalRecipe",
    "tune": None,
    "report": None,
}
"""The dataclass of each verb's recipe; None for a verb that takes no recipe."""


@dataclass(frozen=True, kw_only=True)
class RunRecipe:
    """The stages of a run."""

    stages: tuple[str, ...]
    """Commands as they are typed after `remask`: a verb with its arguments."""
    recipes: dict[str, Any] = field(default_factory=dict)
    """Recipes of the stages, by names that stand for paths in `stages`. Others lie in files of
    their own."""

    def __post_init__(self) -> None:
        for name in self.recipes:
            if not NAME.fullmatch(name) or name in STAGES:
                raise ValueError(
                    f"recipes: a name has letters, digits, - and _, and is no verb; got {name!r}"
                )
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
    parser.add_argument("recipe", help=RECIPE_HELP)
    parser.add_argument("overrides", nargs="*", default=[], metavar="VERB.key=value")
    parser.add_argument("--dry-run", action="store_true", help="check and print the commands")
    arguments = parser.parse_intermixed_args(argv)
    try:
        path = find_recipe(RunRecipe, arguments.recipe)
        recipe = load_recipe(RunRecipe, path, [])
        own = {name: f"{path}:{name}" for name in recipe.recipes}
        commands = with_overrides(recipe.stages, arguments.overrides, own)
        stages, recipes = find_recipes(commands, path.parent, own)
    except ValueError as error:
        fail("remask run", 2, error)
    console, started = make_console(to_stderr=True), time.monotonic()
    for number, (stage, settings) in enumerate(zip(stages, recipes, strict=True), 1):
        if arguments.dry_run:
            say(shlex.join(["remask", *stage]))
            continue
        command = visible(shlex.join(["remask", *stage]))
        console.print(Text.assemble((f"{number} of {len(stages)}", "bold"), f"  {command}"))
        status = _run(stage)
        if status == 0 and isinstance(settings, TrainRecipe) and not _is_finished(settings):
            status = STOPPED  # asked to stop, training saves and exits with 0
        if status == STOPPED:
            stopped = f"remask run: stopped in stage {number}, {stage[0]}"
            print(f"{stopped}; run the same command again to continue", file=sys.stderr)
            raise SystemExit(STOPPED)
        if status:
            print(
                f"remask run: stage {number}, {stage[0]}, ended with status {status}; fix it and "
                "run the same command again to continue",
                file=sys.stderr,
            )
            raise SystemExit(status if status > 0 else 1)
    if not arguments.dry_run:
        made = list(map(output_of, stages, recipes))
        count = f"{len(stages)} stage{'s' * (len(stages) > 1)}"
        took = duration(time.monotonic() - started)
        say(f"run: {count} done in {took}: {', '.join(filter(None, made))}")
        say_next(advice(stages, made))


def output_of(stage: list[str], recipe: Any) -> str:
    """What a stage made: a folder or a file; empty if nothing new has a place of its own."""
    verb, *arguments = stage
    if isinstance(recipe, TrainRecipe):
        return str(RunFolder(recipe.output).model)
    if recipe is not None:
        return recipe.output
    words = [x for x in arguments if not x.startswith("-")]
    match verb:
        case "merge":
            return words[-1]
        case "report":
            at = arguments.index("--output") + 1 if "--output" in arguments else 0
            return arguments[at] if at else f"{words[0].rstrip('/')}/report.html"
    return ""


def advice(stages: list[list[str]], made: list[str]) -> str:
    """What to do after a run: open its report, or else use its last model or data."""
    by_verb = {stage[0]: output for stage, output in zip(stages, made, strict=True)}
    if "report" in by_verb:
        return f"open {by_verb['report']} in a browser"
    model = by_verb.get("merge") or by_verb.get("train")
    if model:
        return after_model(model)
    data = by_verb.get("rollout") or by_verb.get("build")
    return after_shards(data) if data else ""


def with_overrides(
    stages: tuple[str, ...], overrides: list[str], own: Collection[str] = ()
) -> list[list[str]]:
    """Each stage as arguments, with the overrides of its verb, or of its own recipe, appended."""
    stage_words = [shlex.split(stage) for stage in stages]
    commands = [list(words) for words in stage_words]
    for override in overrides:
        which, _, setting = override.partition(".")
        chosen = [
            command
            for words, command in zip(stage_words, commands, strict=True)
            if words[0] == which or (which in own and which in words[1:])
        ]
        if "=" not in setting or not chosen:
            names = f", or NAME.key=value with one of {list(own)}" if own else ""
            raise ValueError(
                f"an override is VERB.key=value with a verb of the recipe{names}, got {override!r}"
            )
        for command in chosen:
            command.append(setting)
    return commands


def find_recipes(
    commands: list[list[str]], beside: Path, own: Mapping[str, str] | None = None
) -> tuple[list[list[str]], list[Any]]:
    """Find and read the recipe of every stage.

    Args:
        commands: Verbs with their arguments.
        beside: Folder of the recipe that lists them.
        own: Recipes in that file: what each name stands for. Defaults to none.

    Returns:
        The commands with the path of each recipe in place of its name; and each recipe, or None for
        a verb that takes none.

    Raises ValueError, naming the stage, for a recipe that cannot be read.
    """
    resolved, recipes = [], []
    own = own or {}
    for number, (verb, *arguments) in enumerate(commands, 1):
        kind = STAGES[verb] and pkgutil.resolve_name(STAGES[verb])
        recipe = None
        if kind:
            words = [x for x in arguments if not x.startswith("-") and "=" not in x]
            if not words:
                raise ValueError(f"stage {number}, {verb}, names no recipe")
            # Values of options are among the words, and neither name a recipe nor end like one.
            name = min(words, key=lambda x: (x not in own, not _is_recipe_file(x)))
            path = find_recipe(kind, own.get(name, name), beside)
            overrides = [x for x in arguments if not x.startswith("-") and "=" in x]
            try:
                recipe = load_recipe(kind, path, overrides)
            except ValueError as error:
                raise ValueError(f"stage {number}, {verb}: {error}") from error
            arguments[arguments.index(name)] = str(path)
        elif verb == "tune":  # a checkpoint and a recipe
            arguments = [own.get(x, x) for x in arguments]
        resolved.append([verb, *arguments])
        recipes.append(recipe)
    return resolved, recipes


def _is_recipe_file(word: str) -> bool:
    return split_section(Path(word))[0].suffix in (SUFFIX, ".yml")


def _is_finished(recipe: TrainRecipe) -> bool:
    outcome = RunFolder(recipe.output).outcome()
    return outcome is not None and outcome.is_finished


def _run(stage: list[str]) -> int:
    """Run a stage and return its exit status.

    Ctrl-C reaches the stage as well, which ends by itself: training saves a checkpoint and exits
    with 0 although it is not finished.
    """
    interrupts = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        command = [sys.executable, "-m", "remask.infra.cli", *stage]
        status = subprocess.run(command, env=os.environ | {IN_A_RUN: "1"}).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    return STOPPED if interrupts else status


if __name__ == "__main__":
    main()
