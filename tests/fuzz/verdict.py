"""Runs one input and judges what came of it.

An input may be accepted, or refused with one of our own errors in one printable line that says what
it is about. Anything else is a failure, counted by its bucket: what was wrong, and the innermost
line of ours on the way there.
"""

import contextlib
import io
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from remask.pipeline.runtime.terminal import one_line, visible
from tests.fuzz.case import Case, Target, ViolationError
from tests.places import ROOT

PACKAGES = ("evaluation", "infra", "kernels", "models", "pipeline", "training")
MAX_CHARACTERS = 2000
"""Of a refusal."""
_SAID = re.compile(r"^remask.*?: ", re.MULTILINE)
"""How a refusal begins, whatever stands above it: progress, and what libraries log."""


@dataclass(frozen=True)
class Verdict:
    """What came of an input."""

    status: Literal["accepted", "refused", "failed"]
    bucket: str = ""
    """Of a failure."""
    detail: str = ""
    """The message, or the end of the traceback."""


def judge(target: Target, case: Case, folder: Path) -> Verdict:
    """Run an input in a folder that is there for it alone."""
    case.write(folder)
    with _in_folder(folder), _captured() as streams:
        try:
            target.run(case)
            error = None
        except BaseException as raised:  # a panic of a native library is no Exception
            error = raised
    out, err = (_text(stream) for stream in streams)
    try:
        verdict = _judge(error, case, out, err)
        if verdict.status != "failed" and (wrong := _unprintable(out)):
            return Verdict("failed", f"output holds {wrong}{_at(error)}", out[-MAX_CHARACTERS:])
        return verdict
    finally:
        if error is not None:
            traceback.clear_frames(error.__traceback__)


def _judge(error: BaseException | None, case: Case, out: str, err: str) -> Verdict:
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return Verdict("accepted")
    if isinstance(error, ViolationError):
        return Verdict("failed", f"{error}"[:200], str(error))
    if isinstance(error, SystemExit):
        return _judge_exit(error, case, out, err)
    if not _is_declared(error):
        trace = "".join(traceback.format_exception(error)[-12:])
        return Verdict("failed", f"{_kind(error)}{_at(error)}", trace[-4000:])
    return _judge_message(error, one_line(error), case)  # as a command would print it


def _judge_exit(error: SystemExit, case: Case, out: str, err: str) -> Verdict:
    if error.code not in (1, 2):
        return Verdict("failed", f"exit status {error.code!r}{_at(error)}", err)
    if "Traceback (most recent call last)" in err:
        return Verdict("failed", f"prints a traceback{_at(error)}", err[-4000:])
    if err.startswith("usage:"):  # of argparse, which has a form of its own
        return Verdict("refused", detail=err.splitlines()[-1])
    said = err[match.start() :] if (match := _SAID.search(err)) else ""
    if not said and error.code == 1 and out.strip():  # such as `verify`: its findings are results
        return Verdict("refused", detail=out.splitlines()[0])
    return _judge_message(error, said.strip(), case)


def _judge_message(error: BaseException, message: str, case: Case) -> Verdict:
    problem = _problem(message, case.names)
    if problem is None:
        return Verdict("refused", detail=message)
    return Verdict("failed", f"message {problem}{_at(error)}", message[:MAX_CHARACTERS])


def _problem(message: str, names: tuple[str, ...]) -> str | None:
    """What is wrong with the words of a refusal."""
    if not message.strip():
        return "is empty"
    if len(message) > MAX_CHARACTERS:
        return f"has more than {MAX_CHARACTERS:,} characters"
    if wrong := _unprintable(message):
        return f"holds {wrong}"
    if "\n" in message:
        return "has several lines"
    if names and not any(visible(name)[:40] in message for name in names if name):
        return "names no file or key"
    return None


def _unprintable(text: str) -> str | None:
    """What a terminal would take for a command, if there is any."""
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):
            return "control characters"
    return None


def _is_declared(error: BaseException) -> bool:
    """ValueError itself, or an error that we define; not what a library derives from ValueError."""
    package = type(error).__module__.partition(".")[0]
    return type(error) is ValueError or (package == "remask" and isinstance(error, Exception))


def _kind(error: BaseException) -> str:
    module = type(error).__module__
    return type(error).__name__ if module == "builtins" else f"{module}.{type(error).__name__}"


def _at(error: BaseException | None) -> str:
    """Where, in our own code; of an exit, where the error was raised that it stands for."""
    while isinstance(error, SystemExit) and (error.__cause__ or error.__context__):
        error = error.__cause__ or error.__context__
    place = innermost(error.__traceback__) if error is not None else None
    return f" at {place}" if place else ""


def innermost(trace: TracebackType | None) -> str | None:
    """File and line of the innermost frame of ours, or else of the innermost at all."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    ours = [place for name, line in frames if (place := project_place(name, line))]
    return ours[-1] if ours else (f"{frames[-1][0]}:{frames[-1][1]}" if frames else None)


def project_place(name: str, line: int) -> str | None:
    """A frame's file and line, if the file is one of the packages'."""
    with contextlib.suppress(ValueError):
        inside = Path(name).resolve().relative_to(ROOT)
        if inside.parts[0] in PACKAGES:
            return f"{inside}:{line}"
    return None


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _captured() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Output and errors, encoded as a terminal's are: what cannot be, raises here too."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    stdin, sys.stdin = sys.stdin, io.StringIO("")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield out, err
    finally:
        sys.stdin = stdin


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(errors="replace")
