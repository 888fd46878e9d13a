"""Folders that appear whole or not at all, replace nothing but their own kind, and name no file
outside themselves.

Beside its files a folder has their checksums in SHA256SUMS, which `sha256sum -c` reads too. Without
it, as others publish them, a folder is read as it is.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

StrPath = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")

SUMS = "SHA256SUMS"
_HASHERS = 4
"""Files hashed at once."""


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
        _seal(aside)
        if folder.exists():  # a kill between the two renames leaves the old one beside, whole
            old = aside.with_name(f"{aside.name}.old")
            folder.rename(old)
            aside.rename(folder)
            shutil.rmtree(old)
        else:
            aside.rename(folder)
        flush(folder.parent)
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
        others = sorted(x.name for x in folder.iterdir() if x.name not in (*names, SUMS))
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


def check_sums(folder: Path, paths: Iterable[Path]) -> None:
    """Raise CheckpointError if one of these files is not as SHA256SUMS, if there is one, has it."""
    if not (folder / SUMS).is_file():
        return
    sums = {}
    for line in (folder / SUMS).read_text(errors="replace").splitlines():
        expected, _, name = line.partition(" ")
        sums[name.lstrip(" *")] = expected
    listed = [x for x in paths if x.name in sums]
    for path, found in zip(listed, sha256_of(listed), strict=True):
        if found != sums[path.name]:
            raise CheckpointError(
                f"{path} does not match its checksum in {SUMS}: it is damaged, or was changed; get "
                f"it anew, or remove {SUMS} if the change is yours"
            )


def sha256_of(paths: Sequence[Path]) -> list[str]:
    """The checksum of each file, several at once."""
    with ThreadPoolExecutor(_HASHERS) as pool:
        return list(pool.map(_sha256, paths))


def flush(path: StrPath) -> None:
    """Have the disk hold a file's bytes, or a folder's names, before anything that comes after."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Write a file aside, flush it, put it in its place: a kill leaves the old one or the new."""
    aside = path.with_name(f".{path.name}.partial")
    aside.write_text(text)
    flush(aside)
    aside.replace(path)
    flush(path.parent)


def _seal(folder: Path) -> None:
    paths = sorted(folder.iterdir())
    sums = zip(sha256_of(paths), paths, strict=True)
    (folder / SUMS).write_text("".join(f"{x}  {path.name}\n" for x, path in sums))
    for path in (*paths, folder / SUMS, folder):
        flush(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
