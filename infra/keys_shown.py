"""The reference of recipe keys in a terminal: one line per key, so that `grep` finds it.

On a terminal long lines are wrapped below their first one.
"""

import shutil
import sys
import textwrap

from remask.infra.keys import Key, Section, recipe_keys, recipe_kinds
from remask.pipeline.runtime.terminal import say

MIN_MEANING = 40
"""Columns that the meaning has at least, however wide the others are."""
WIDTHS = (34, 30, 14)
"""Limits of the columns for path, type and default; a longer entry moves what follows it."""


def print_keys(words: list[str]) -> None:
    """Print the keys of a verb's recipe, of a section of it, or of one kind of that section.

    Raises ValueError for names that do not exist.
    """
    if not words:
        for line in overview():
            say(line)
        return
    if len(words) > 3:
        raise ValueError(f"keys takes a verb, a section and a kind, got {len(words)} words")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, section in enumerate(recipe_keys(*words)):
        if number:
            print()
        for line in section_lines(section, width):
            say(line)


def overview() -> list[str]:
    """A line for each verb with a recipe: the sections of its recipe."""
    kinds = recipe_kinds()
    width = max(map(len, kinds))
    lines = []
    for verb in kinds:
        outer = [x.path for x in recipe_keys(verb) if "." not in x.path.removesuffix(".NAME")]
        lines.append(
            f"{verb:{width}}  {', '.join(filter(None, dict.fromkeys(outer))) or 'no sections'}"
        )
    return [*lines, "", "remask recipes keys VERB [SECTION [KIND]] lists their keys."]


def section_lines(section: Section, width: int | None) -> list[str]:
    """A heading and a line per key; long lines are wrapped if a width is given."""
    lines = _wrapped(f"# {section.title}: {section.meaning}".rstrip(": "), "#   ", width)
    if section.presets:
        lines.append(f"# preset: {' | '.join(section.presets)}")
    cells = [(key.path, _type(key), _default(key)) for key in section.keys]
    widths = [
        min(limit, max((len(row[i]) for row in cells), default=0)) for i, limit in enumerate(WIDTHS)
    ]
    for key, row in zip(section.keys, cells, strict=True):
        start = "  ".join(f"{text:{size}}" for text, size in zip(row, widths, strict=True))
        line = f"{start}  {key.meaning}".rstrip()
        indent = " " * min(sum(widths) + 6, max(4, (width or 0) - MIN_MEANING))
        lines += _wrapped(line, indent, width)
    return lines


def _type(key: Key) -> str:
    return f"{key.type} in {key.range}" if key.range else key.type


def _default(key: Key) -> str:
    return key.default if key.default else "-"


def _wrapped(line: str, indent: str, width: int | None) -> list[str]:
    if width is None:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
