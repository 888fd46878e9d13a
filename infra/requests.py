"""Requests on the command line, in files and on standard input: where each stands, and what it
asks.

A line is a JSON object, such as {"prompt": ..., "draft": ...} or {"board": ...}, or a board of
digits, which may be followed by a space and as many digits 0 and 1.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remask.infra.reviser import Reviser
from remask.pipeline.inputs.reader import Kind, Start

BAD_LINES_SHOWN = 3
Lines = list[tuple[str, str]]
"""Lines that are not blank, each with its location."""


def read_lines(inputs: Sequence[str]) -> Lines:
    """The lines of arguments, of files that they name, or else of standard input."""
    return [(where, line) for where, line in _lines(inputs) if line.strip()]


def kind_of(lines: Lines) -> Kind:
    """The kind of input that lines hold, by the first of them; boards if there are none."""
    for _, line in lines[:1]:
        if line.lstrip().startswith("{") and '"prompt"' in line:
            return "text"
    return "sudoku"


def read_starts(lines: Lines, reviser: Reviser) -> list[Start]:
    """The starts of all lines; ValueError with the locations of the first bad ones."""
    starts, bad = [], []
    for where, line in lines:
        try:
            starts.append(reviser.start(parse_request(line, reviser.kind)))
        except ValueError as error:
            bad.append(f"{where}: {error}")
    if bad:
        more = f"; and {len(bad) - BAD_LINES_SHOWN} more" if len(bad) > BAD_LINES_SHOWN else ""
        raise ValueError("; ".join(bad[:BAD_LINES_SHOWN]) + more)
    if not starts:
        what = "boards" if reviser.kind == "sudoku" else "prompts"
        raise ValueError(f"no {what} given: pass them as arguments, in a file or on standard input")
    return starts


def parse_request(line: str, kind: Kind) -> Mapping[str, Any]:
    """What a line asks of a model of a kind."""
    if kind == "sudoku" and not line.lstrip().startswith("{"):
        digits, *rest = line.split()
        return {"board": digits, "editable": " ".join(rest)} if rest else {"board": digits}
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f'a line is a JSON object such as {{"prompt": ..., "draft": ...}}: {error}'
        ) from error
    if not isinstance(request, dict):
        raise ValueError(f"a line is a JSON object, got {type(request).__name__}")
    return request


def check_text(name: str, text: str | None) -> None:
    """Raise ValueError if an argument of the command line was not UTF-8."""
    if text is not None and any("\ud800" <= x <= "\udfff" for x in text):
        raise ValueError(f"{name} is not UTF-8: {text!r}")


def _lines(inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not inputs:
        stream = getattr(sys.stdin, "buffer", sys.stdin)
        yield from _numbered("standard input", stream)
    for number, given in enumerate(inputs, 1):
        if _is_file(given):
            try:
                yield from _numbered(given, Path(given).read_bytes().splitlines())
            except (OSError, ValueError) as error:  # not UTF-8, or not a path
                raise ValueError(f"cannot read boards from {given}: {error}") from error
        elif not _is_request(given):
            raise ValueError(
                f"there is no file {given}, and a board is 81 or 16 digits, 0 or . for a blank; a "
                "prompt is given by --prompt"
            )
        else:
            yield f"request {number}", given


def _numbered(name: str, lines: Iterable[str | bytes]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines, 1):
        where = f"{name}: line {number}"
        try:
            yield where, line.decode() if isinstance(line, bytes) else line
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where} is not UTF-8: {error.reason} at byte {error.start}"
            ) from None


def _is_file(text: str) -> bool:
    return not _is_request(text) and (os.path.exists(text) or "/" in text or "\\" in text)


def _is_request(text: str) -> bool:
    return set(text) <= set("0123456789. ") or text.lstrip().startswith("{")
