"""Folders that appear whole or not at all, and replace nothing but their own kind."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path


class CheckpointError(ValueError):
    """A folder that is not a checkpoint we can read; the message says what is wrong with it."""


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
