"""Recipes: strict reading of YAML into frozen dataclasses, found by path or by name.

A packaged recipe lies in the folder `recipes` beside the module of its dataclass, so the name
`sudoku4` means another file to `remask build` than to `remask train`.

A file may hold several recipes by name, under the key `recipes`: `own.yaml:data` is one of them.
"""

import dataclasses
import difflib
import hashlib
import inspect
import itertools
import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remask.models.config import from_mapping
from remask.pipeline.runtime.plain_yaml import read_yaml

SUFFIX = ".yaml"
MAX_TITLE = 120
"""Limit on the characters of a title taken from a comment."""
SECTIONS = "recipes"
"""Key of the recipes in a file that holds several."""
RECIPE_HELP = "a YAML file, or a packaged recipe's name (`remask recipes` lists them)"


def load_recipe(kind: type, name: str | Path, overrides: list[str]) -> Any:
    """Find a recipe, apply `section.key=value` overrides, and check all of it.

    Args:
        kind: Dataclass of the recipe.
        name: A path, or the name of a packaged recipe.
        overrides: Values as YAML, each with the dots that lead to its key.

    Raises:
        ValueError: The file cannot be read or a value is wrong; the message names file and key.
    """
    path = find_recipe(kind, name)
    values = _titled(kind, path, _read(kind, path))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ValueError(f"an override is section.key=value, got {override!r}")
        _override(values, key, read_yaml(text, f"{override!r}: the value"), repr(override))
    return from_mapping(kind, values, str(path))


def read_keys(kind: type, name: str | Path) -> set[str]:
    """The sections of a recipe, by which one dataclass can be told from another."""
    return set(_read(kind, find_recipe(kind, name)))


def make_recipe(kind: type, recipe: Any, overrides: Mapping[str, Any]) -> Any:
    """The same from Python: a path, a packaged recipe's name, a mapping or the dataclass itself.

    Args:
        kind: Dataclass of the recipe.
        recipe: What is run.
        overrides: Values by key. `__` in a key stands for the dot: `source__train`.

    Raises ValueError, naming the file or the dataclass and the key, for anything that does not fit.
    """
    if isinstance(recipe, kind):
        if not overrides:
            return recipe
        values, where = dataclasses.asdict(recipe), kind.__name__
    elif isinstance(recipe, Mapping):
        values, where = _without_paths(recipe), kind.__name__
    elif isinstance(recipe, str | os.PathLike):
        path = find_recipe(kind, recipe)
        values, where = _titled(kind, path, _read(kind, path)), str(path)
    else:
        raise ValueError(
            f"a recipe is a path, a name, a mapping or a {kind.__name__}, got "
            f"{type(recipe).__name__}"
        )
    for key, value in overrides.items():
        _override(values, key.replace("__", "."), _without_paths(value), f"override {key}")
    return from_mapping(kind, values, where)


def find_recipe(kind: type, name: str | os.PathLike[str], beside: Path | None = None) -> Path:
    """The file of a recipe: a path, a file beside the recipe that names it, or a packaged one.

    Args:
        kind: Dataclass of the recipe.
        name: A path, which may go on with `:NAME` for a recipe in that file; or the name of a
            packaged recipe, as `sudoku4`, `sudoku4.yaml` or `pipeline/recipes/sudoku4.yaml`.
        beside: Folder of the recipe that names this one.

    Returns:
        The first that exists; `name` itself if none does, so that reading it says why.
    """
    path, folder = Path(name), packaged_folder(kind)
    candidates = [path]
    if beside is not None:
        candidates.append(beside / path)
    is_bare = path.parent in (Path(), Path(folder.parent.name, folder.name))
    if is_bare and split_section(path)[1] is None:
        candidates.append(folder / f"{path.name.removesuffix(SUFFIX)}{SUFFIX}")
    return next((x for x in candidates if _is_file(split_section(x)[0])), path)


def split_section(path: Path) -> tuple[Path, str | None]:
    """The file that a path names, and which of the recipes in it."""
    file, colon, section = str(path).rpartition(":")
    if not colon or not file.endswith((SUFFIX, ".yml")) or _is_file(path):
        return path, None
    return Path(file), section


def packaged_folder(kind: type) -> Path:
    """Where the packaged recipes of a dataclass lie, in a clone as in a wheel."""
    return Path(inspect.getfile(kind)).parent / "recipes"


def digest(values: Any) -> str:
    """A short hash of plain values, the same on every machine."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _is_file(path: Path) -> bool:
    return os.path.exists(path) and not os.path.isdir(path)


def _read(kind: type, path: Path) -> dict[str, Any]:
    file, section = split_section(path)
    values = _read_file(kind, file)
    if section is None:
        return values
    recipes = values.get(SECTIONS)
    names = list(recipes) if isinstance(recipes, dict) else []
    if section not in names or not isinstance(recipes, dict):
        raise ValueError(f"{file} holds no recipe {section!r} under `{SECTIONS}`; it has {names}")
    if not isinstance(recipes[section], dict):
        raise ValueError(f"{path}: expected keys and values, got {recipes[section]!r}")
    return recipes[section]


def _read_file(kind: type, path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        advice = _advice(kind, path) if isinstance(error, FileNotFoundError) else ""
        raise ValueError(f"cannot read recipe {path}: {error.strerror}{advice}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    values = read_yaml(text, str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected keys and values, got {values!r}")
    return _without_paths(values)  # what YAML aliases share becomes values of their own


def _titled(kind: type, path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The values with a `title`, if the dataclass has that field and the file sets none."""
    if "title" not in {field.name for field in dataclasses.fields(kind)} or values.get("title"):
        return values
    file, _ = split_section(path)
    return values | {"title": opening_sentence(file.read_text("utf-8")) or file.stem}


def opening_sentence(text: str) -> str:
    """The first sentence of the comment that a file opens with; empty if there is no comment."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    comment = " ".join(line.strip("# ") for line in lines)
    return textwrap.shorten(comment.partition(". ")[0].rstrip("."), MAX_TITLE, placeholder=" …")


def _advice(kind: type, path: Path) -> str:
    names = sorted(x.stem for x in packaged_folder(kind).glob(f"*{SUFFIX}"))
    near = difflib.get_close_matches(path.name.removesuffix(SUFFIX), names)
    if near:
        return f"; packaged recipes of a similar name are {', '.join(near)}"
    return "; `remask recipes` lists the packaged ones" if names else ""


def _override(values: dict[str, Any], key: str, value: Any, what: str) -> None:
    *sections, last = key.split(".")
    for section in sections:
        if values.get(section) is None:
            values[section] = {}
        values = values[section]
        if not isinstance(values, dict):
            raise ValueError(f"{what}: {section} is a value, not a section")
    values[last] = value


def _without_paths(value: Any) -> Any:
    """A copy of Python values in which paths are text and mappings are dictionaries."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    return value
