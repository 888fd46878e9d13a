"""Text on the terminal: control characters in data and errors are shown, never executed.

Example ids, paths and cells of tables come from untrusted files. Escape sequences in them could
move the cursor or hide text, and rich reads brackets as markup.
"""

import io
import re
import sys
import unicodedata
from typing import NoReturn, TextIO

from rich.console import Console

MAX_ERROR = 1600
"""Limit on the printed characters of an error."""
KEPT_END = 400
"""Characters kept at the end of an error that is too long, where it says what to do."""


def visible(text: object) -> str:
    """Text in one line, with escapes such as \\\\x1b for unprintable characters."""
    shown = str(text)
    return shown if shown.isprintable() else "".join(map(_visible_character, shown))


def _visible_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def say(text: object, *, to_stderr: bool = False) -> None:
    """Print one line."""
    stream = _forgiving(sys.stderr if to_stderr else sys.stdout)
    print(visible(text), file=stream, flush=to_stderr)


def fail(command: str, status: int, error: object) -> NoReturn:
    """Exit with a one-line error: status 2 for a wrong request, 1 for a failed run."""
    complain(command, error)
    raise SystemExit(status)


def complain(command: str, error: object) -> None:
    """Print a one-line error to stderr."""
    say(f"{command}: {one_line(error)}", to_stderr=True)


def one_line(error: object) -> str:
    """An error in one line; a long one is cut in the middle, since it ends with what to do."""
    text = re.sub(r"\s*\n\s*", " ", str(error)).strip()
    if len(text) > MAX_ERROR:
        text = f"{text[: MAX_ERROR - KEPT_END]} … {text[-KEPT_END:]}"
    return visible(text)


def make_console(*, to_stderr: bool = False) -> Console:
    """A console that reads no text as markup; style with `rich.text.Text`."""
    stream = _forgiving(sys.stderr if to_stderr else sys.stdout)
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _forgiving(stream: TextIO) -> TextIO:
    """The same stream, with escapes for characters that its encoding lacks."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")
    return stream
