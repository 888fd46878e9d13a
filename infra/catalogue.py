"""The packaged recipes: list, print or copy them; write one for data of your own; what keys mean.

remask recipes                                # all, with the command that runs each
remask recipes show sudoku_small
remask recipes show training/recipes/sudoku4.yaml
remask recipes copy llada_math_lora my_math.yaml
remask recipes new text --data sums.jsonl --tokenizer folder    # then: remask run sums.yaml
remask recipes new text --data sums.jsonl --tokenizer folder \\
    --prompt "Q: {question}\\nA: " --response "{answer}" --file own.yaml
remask recipes keys                           # the sections of every verb's recipe
remask recipes keys train optimizer           # name, type and range, default, meaning
remask recipes keys build source text | grep max
"""

import argparse
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from remask import ROOMS
from remask.pipeline.runtime.recipes import SUFFIX
from remask.pipeline.runtime.terminal import fail, make_console, say

_COMMAND = re.compile(r"^#\s+(?:[A-Z_]+=\S+ )*remask (\w+) ", re.MULTILINE)


@dataclass(frozen=True)
class PackagedRecipe:
    """A recipe that comes with the package."""

    path: Path
    verb: str
    """The command that runs it, as its own comment says."""
    summary: str
    """Its first comment line."""

    @property
    def name(self) -> str:
        """Unique among the recipes of one verb."""
        return self.path.stem

    @property
    def full_name(self) -> str:
        """Unique among all, such as `pipeline/recipes/sudoku4.yaml`."""
        return "/".join(self.path.parts[-3:])


def packaged_recipes() -> list[PackagedRecipe]:
    """All of them, in the order of the stages."""
    recipes = []
    for room in ROOMS:
        spec = importlib.util.find_spec(f"remask.{room}")
        assert spec is not None
        assert spec.origin is not None
        for path in sorted(Path(spec.origin).parent.glob(f"recipes/*{SUFFIX}")):
            text = path.read_text("utf-8")
            command = _COMMAND.search(text)
            recipes.append(
                PackagedRecipe(
                    path,
                    command[1] if command else "",
                    text.splitlines()[0].removeprefix("#").strip(),
                )
            )
    return recipes


def find_packaged(name: str) -> PackagedRecipe:
    """The recipe of a name, short or full; ValueError if there is none, or more than one."""
    recipes = packaged_recipes()
    short = name.removesuffix(SUFFIX)
    matches = [x for x in recipes if short in (x.name, x.full_name.removesuffix(SUFFIX))]
    if not matches:
        raise ValueError(f"there is no packaged recipe {name}; `remask recipes` lists them")
    if len(matches) > 1:
        names = ", ".join(x.full_name for x in matches)
        raise ValueError(f"{name} names {len(matches)} recipes, {names}; give one of these")
    return matches[0]


def copy_recipe(recipe: PackagedRecipe, target: Path) -> Path:
    """Copy a recipe to a new file, or into a folder; ValueError if the file exists."""
    target = target / recipe.path.name if target.is_dir() else target
    try:
        with target.open("xb") as file:
            file.write(recipe.path.read_bytes())
    except FileExistsError:
        raise ValueError(f"{target} exists; choose another name or remove it") from None
    except OSError as error:
        raise ValueError(f"cannot write {target}: {error.strerror}; choose another path") from error
    return target


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask recipes", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    show = actions.add_parser("show", help="print a recipe")
    copy = actions.add_parser("copy", help="copy a recipe to a file that does not exist yet")
    for action in (show, copy):
        action.add_argument("name", help="such as sudoku_small or training/recipes/sudoku4.yaml")
    keys = actions.add_parser("keys", help="what the keys of a recipe mean")
    keys.add_argument("words", nargs="*", metavar="VERB SECTION KIND", help="all of it, or a part")
    copy.add_argument("path", nargs="?", type=Path, help="file or folder (default: this folder)")
    new = actions.add_parser("new", help="write a recipe for your own data, with sizes that fit it")
    new.add_argument("kind", choices=("text",), help="text: prompts and responses, from any table")
    new.add_argument("--data", required=True, help=".jsonl, .json, .csv, .parquet, or a hub name")
    new.add_argument(
        "--tokenizer", required=True, help="folder or hub name of a Hugging Face tokenizer"
    )
    new.add_argument("--output", help="folder of what the run makes (default: runs/NAME)")
    new.add_argument("--prompt", help="template over a row's fields (default: a guess)")
    new.add_argument("--response", help="template over a row's fields, goes with --prompt")
    new.add_argument("--file", help="where to write the recipe (default: NAME.yaml)")
    arguments = parser.parse_args(argv)
    try:
        if arguments.action == "new":
            write_new(arguments)
        elif arguments.action is None:
            print_recipes(packaged_recipes())
        elif arguments.action == "keys":
            from remask.infra.keys_shown import print_keys  # imports every stage

            print_keys(arguments.words)
        elif arguments.action == "show":
            sys.stdout.write(find_packaged(arguments.name).path.read_text("utf-8"))
        else:
            say(copy_recipe(find_packaged(arguments.name), arguments.path or Path()))
    except ValueError as error:
        fail("remask recipes", 2, error)


def write_new(arguments: argparse.Namespace) -> None:
    """Write a recipe for one's own text and say what to do with it."""
    from remask.infra.text_recipe import new_text_recipe  # imports torch

    templates = (arguments.prompt, arguments.response)
    prompt, response = (x and x.replace("\\n", "\n") for x in templates)
    path = new_text_recipe(
        arguments.data,
        arguments.tokenizer,
        output=arguments.output,
        prompt=prompt,
        response=response,
        file=arguments.file,
    )
    say(f"{path} is written; read it, then run it: remask run {path}")


def print_recipes(recipes: list[PackagedRecipe]) -> None:
    """Print a line for each: the command that runs it, and its first comment line."""
    table = Table("command", "what it does", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for recipe in recipes:
        table.add_row(f"remask {recipe.verb} {recipe.name}", recipe.summary)
    make_console().print(table)


if __name__ == "__main__":
    main()
