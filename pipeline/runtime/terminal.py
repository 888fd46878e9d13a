"""Text on the terminal: what data and errors hold is shown, never obeyed.

Example ids, paths and cells of tables come from files that others wrote. Escape sequences in them
would move the cursor or hide text, and brackets are markup to rich.
"""

import io
import re
import sys
import unicodedata
from typing import NoReturn, TextIO

from rich.console import Console

LONGEST_ERROR = 1600
"""Characters of an error that are printed."""
ADVICE = 400
"""Of these, the last ones: an error ends with what to do."""


def visible(text: object) -> str:
    """Text in one line, with escapes such as \\\\x1b for all that a terminal would not print."""
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
    """End a command with one line that says why: status 2 for a wrong request, 1 for a failure."""
    complain(command, error)
    raise SystemExit(status)


def complain(command: str, error: object) -> None:
    """Say in one line, on stderr, what is wrong."""
    say(f"{command}: {one_line(error)}", to_stderr=True)


def one_line(error: object) -> str:
    """An error as it is printed; a long one keeps its beginning and its advice."""
    text = re.sub(r"\s*\n\s*", " ", str(error)).strip()
    if len(text) > LONGEST_ERROR:
        text = f"{text[: LONGEST_ERROR - ADVICE]} … {text[-ADVICE:]}"
    return visible(text)


def make_console(*, to_stderr: bool = False) -> Console:
    """A console that takes no text for markup; style by `rich.text.Text`."""
    stream = _forgiving(sys.stderr if to_stderr else sys.stdout)
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _forgiving(stream: TextIO) -> TextIO:
    """The same stream, with escapes in place of what its encoding lacks."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
        stream.reconfigure(errors="backslashreplace")
    return stream
