"""Pages of the Python functions and classes, from their signatures and docstrings."""

import importlib
import inspect
import re
import textwrap
from typing import Any

from remask.infra.field_docs import field_docs

MODULES = {
    "remask": "What `import remask` offers.",
    "remask.models": "Backbones, decoders, checkpoints and image tokenisers.",
    "remask.pipeline": "Manifests, shards, proposals and trajectories.",
    "remask.kernels": "The history operators.",
    "remask.infra.keys": "The reference of recipe keys as data.",
}
"""Modules with a page, and what the page is about."""
PARTS = ("Args", "Returns", "Raises", "Yields")
WIDTH = 88


def api_page(module: str) -> str:
    """The page of a module: everything public that is defined below it, by name."""
    lines = [f"# `{module}`", "", MODULES[module]]
    for name, thing in public(module).items():
        lines += ["", f"## {name}", "", *_described(name, thing)]
    return "\n".join(lines) + "\n"


def public(module: str) -> dict[str, Any]:
    """The functions and classes that a module offers."""
    imported = importlib.import_module(module)
    names = getattr(imported, "__all__", None)
    if names is None:
        names = [
            name
            for name, thing in vars(imported).items()
            if getattr(thing, "__module__", "") == module and not name.startswith("_")
        ]
    things = {name: getattr(imported, name) for name in names}
    return {name: x for name, x in things.items() if inspect.isfunction(x) or inspect.isclass(x)}


def _described(name: str, thing: Any) -> list[str]:
    lines = ["```python", _signature(name, thing), "```", "", *markdown(inspect.getdoc(thing))]
    if inspect.isclass(thing):
        docs = field_docs(thing)
        lines += [""] * bool(docs) + [f"- `{field}`: {text}" for field, text in docs.items()]
        for method, function in vars(thing).items():
            is_ours = inspect.isfunction(function) and not method.startswith("_")
            if is_ours and function.__doc__:
                lines += ["", "```python", _signature(method, function), "```", ""]
                lines += markdown(inspect.getdoc(function))
    return lines


def _signature(name: str, thing: Any) -> str:
    """`def` or `class` with its arguments, a line each if they do not fit one."""
    if inspect.isclass(thing):
        return f"class {name}"
    signature = inspect.signature(thing)
    line = f"def {name}{signature}"
    if len(line) <= WIDTH:
        return line
    text = str(signature)
    inside, _, returned = text[1:].rpartition(") -> ")
    return f"def {name}(\n{_lines(inside)}\n) -> {returned}"


def _lines(arguments: str) -> str:
    """Arguments a line each; commas within brackets or quotes separate none."""
    parts, depth, start, quote = [], 0, 0, ""
    for i, character in enumerate(arguments):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "[({":
            depth += 1
        elif character in "])}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(arguments[start:i].strip())
            start = i + 1
    parts.append(arguments[start:].strip())
    return "\n".join(f"    {part}," for part in parts if part)


def markdown(doc: str | None) -> list[str]:
    """A docstring with its parts as headings and its arguments as a list."""
    lines: list[str] = []
    part = ""
    for line in (doc or "").splitlines():
        heading = re.fullmatch(r"(\w+):", line)
        if heading and heading[1] in PARTS:
            part = heading[1]
            lines += ["", f"**{part}**", ""]
        elif part and line.startswith("    "):
            lines.append(_entry(textwrap.dedent(line) if not line.startswith(" " * 8) else line))
        else:
            part = "" if line else part
            lines.append(line)
    return lines


def _entry(line: str) -> str:
    """A line of a part: a new argument or error, or the rest of the one before."""
    match = re.match(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)", line)
    if match:
        return f"- `{match[1]}`: {match[2]}"
    return f"    {line.strip()}" if line.startswith(" ") else line
