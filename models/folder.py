"""Folders that appear whole or not at all, and replace nothing but their own kind; and names in
files that stay below their folder."""

import contextlib
import functools
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

StrPath = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")


class CheckpointError(ValueError):
    """A folder that is not a checkpoint we can read; the message says what is wrong with it."""


def reads_folder(
    read: Callable[Concatenate[StrPath, P], R],
) -> Callable[Concatenate[StrPath, P], R]:
    """Make a function that reads the folder at its first argument raise CheckpointError for a path
    that the system refuses: too long a name, a NUL byte, no permission, a disk that fails."""

    @functools.wraps(read)
    def checked(path: StrPath, *args: P.args, **kwargs: P.kwargs) -> R:
        if "\0" in str(path):
            raise CheckpointError(f"{str(path)!r} holds a NUL byte, which no path may")
        try:
            return read(path, *args, **kwargs)
        except OSError as error:
            at = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}{at}") from error

    return checked


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str], names: Sequence[str]) -> Iterator[Path]:
    """A folder to write files of these names into; it takes its place when all is written."""
    folder = Path(path).resolve()
    check_replaceable(folder, names)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    aside.mkdir()
    try:
        yield aside
        if folder.exists():  # a kill between the two renames leaves the old one beside, whole
            old = aside.with_name(f"{aside.name}.old")
            folder.rename(old)
            aside.rename(folder)
            shutil.rmtree(old)
        else:
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@reads_folder
def check_replaceable(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Raise CheckpointError if the folder holds anything but files of these names."""
    folder = Path(path)
    if not folder.exists():
        return
    others = ["it is a file"]
    if folder.is_dir():
        others = sorted(x.name for x in folder.iterdir() if x.name not in names)
    if others:
        raise CheckpointError(
            f"{folder} is more than a checkpoint ({', '.join(others[:3])}); choose another folder"
        )


def check_inside(name: object) -> str:
    """A file's name or relative path that comes from a file, if it stays below its folder.

    All that a manifest, an index, a table or an archive names passes here before it is opened or
    removed. Links that the user put into a folder may lead elsewhere.

    Raises ValueError for anything absolute, anything with `..`, a scheme or a control character in
    it, and for what is no name at all.
    """
    if (
        not isinstance(name, str)
        or any(part in ("", ".", "..") for part in name.split("/"))
        or "\\" in name
        or any(ord(x) < 32 for x in name)
    ):
        raise ValueError(f"{name!r} does not name a file below its folder, so it is not touched")
    return name


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make what was created or renamed in a folder outlast a loss of power."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
