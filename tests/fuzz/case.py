"""What is fuzzed: a target makes inputs, by a generator of chance, and runs them as commands do.

An input is some files and some arguments. It runs in a folder that holds the files and nothing
else, so relative paths reach them. Input i of a target is a function of (seed, target, i) alone.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

Files = dict[str, bytes]
"""By path, relative to the folder of the input."""


class ViolationError(Exception):
    """Nothing was raised, but something happened that must not; the text says what."""


@dataclass(frozen=True)
class Case:
    """One input."""

    files: Files
    arguments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What was done to sound values to make it, for people."""
    names: tuple[str, ...] = ()
    """A refusal has to mention one of these: a file, a key, a value. Empty allows any message."""

    def write(self, folder: Path) -> None:
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    @property
    def size(self) -> int:
        """Smaller ones are easier to understand."""
        return 1000 * len(self.notes) + sum(map(len, self.notes))


@dataclass(frozen=True)
class Target:
    """An entry of the commands, and inputs for it."""

    name: str
    make: Callable[[Random], Case]
    run: Callable[[Case], object]
    """Called in the folder of the input; what it raises is judged."""
    share: float = 1.0
    """Of the inputs, relative to the other targets: slow ones take less."""

    def case(self, seed: int, index: int) -> Case:
        return self.make(Random(f"{seed}/{self.name}/{index}"))


def save_case(path: Path, target: str, case: Case, **facts: Any) -> None:
    """Write an input so that `--replay` runs it again, whatever has become of the generators."""
    values = {
        "target": target,
        **facts,
        "notes": [_printable(x) for x in case.notes],
        "arguments": case.arguments,
        "names": case.names,
        "files": {name: _packed(data) for name, data in case.files.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1))


def load_case(path: Path) -> tuple[str, Case]:
    """The name of the target, and the input."""
    values = json.loads(path.read_text())
    files = {name: _unpacked(data) for name, data in values["files"].items()}
    fields = (tuple(values[x]) for x in ("arguments", "notes", "names"))
    return values["target"], Case(files, *fields)


def _packed(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _unpacked(data: str | dict[str, str]) -> bytes:
    return data.encode() if isinstance(data, str) else base64.b64decode(data["base64"])


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
