"""Folders that are written atomically, replace only their own kind, and name no outside file.

A folder holds the checksums of its files in SHA256SUMS, in the format of `sha256sum -c`. A folder
without that file, as others publish them, is read unchecked.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

StrPath = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")

CONFIG, DECODING, SUMS = "config.json", "decoding.json", "SHA256SUMS"
_HASH_THREADS = 4


class CheckpointError(ValueError):
    """A folder is not a checkpoint that we can read; the message says why."""


def reads_folder(
    read: Callable[Concatenate[StrPath, P], R],
) -> Callable[Concatenate[StrPath, P], R]:
    """Decorator: raise CheckpointError where the operating system refuses the path of a folder.

    The path is the first argument of the function. Reasons are an overlong name, a NUL byte,
    missing permission, or a failing disk.
    """

    @functools.wraps(read)
    def checked(path: StrPath, *args: P.args, **kwargs: P.kwargs) -> R:
        if "\0" in str(path):
            raise CheckpointError(f"{str(path)!r} holds a NUL byte, which is not allowed in a path")
        try:
            return read(path, *args, **kwargs)
        except OSError as error:
            at = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}{at}") from error

    return checked


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], names: Sequence[str]) -> Iterator[Path]:
    """Write a folder atomically: yields a temporary folder, which is moved to `path` at the end.

    Args:
        path: The folder. An existing one is replaced if it holds files of these names only.
        names: Names of all files that may be written, relative to the folder.
    """
    folder = Path(path).resolve()
    check_replaceable(folder, names)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    partial.mkdir()
    try:
        yield partial
        _seal(partial)
        if folder.exists():  # a kill between the two renames leaves the old folder under .old
            old = partial.with_name(f"{partial.name}.old")
            folder.rename(old)
            partial.rename(folder)
            shutil.rmtree(old)
        else:
            partial.rename(folder)
        flush(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@reads_folder
def check_replaceable(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Raise CheckpointError if the folder holds anything but files of these names."""
    folder = Path(path)
    if not folder.exists():
        return
    others = ["it is a file"]
    if folder.is_dir():
        own = {*names, SUMS}
        own |= {_aside(name) for name in own}  # left by a writer that was killed
        others = sorted(x for x in _contents(folder, own) if x not in own)
    if others:
        raise CheckpointError(
            f"{folder} holds more than a checkpoint ({', '.join(others[:3])}); choose another "
            "folder"
        )


def _contents(folder: Path, own: Collection[str]) -> Iterator[str]:
    """Relative paths of what a folder holds; it looks into subfolders only where `own` does."""
    inner = {name.partition("/")[0] for name in own if "/" in name}
    for path in folder.iterdir():
        if path.name in inner and path.is_dir():
            yield from (f"{path.name}/{x.name}" for x in path.iterdir())
        else:
            yield path.name


def check_inside(name: object) -> str:
    """Return a file name or relative path unchanged if it stays below its folder.

    Every name that a manifest, an index, a table or an archive holds passes this check before it
    is opened or removed. Links that the user put into a folder may lead elsewhere.

    Raises:
        ValueError: The name is not text, is empty or absolute, or has `..`, a scheme, a backslash
            or a control character in it.
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
    """Raise CheckpointError if a file differs from its entry in SHA256SUMS, if there is one."""
    if not (folder / SUMS).is_file():
        return
    sums = {_named(line): line.partition(" ")[0] for line in _sum_lines(folder)}
    listed = [x for x in paths if x.name in sums]
    for path, actual in zip(listed, sha256_of(listed), strict=True):
        if actual != sums[path.name]:
            raise CheckpointError(
                f"{path} does not match its checksum in {SUMS}: it is damaged, or was changed; get "
                f"it again, or remove {SUMS} if the change is yours"
            )


def sha256_of(paths: Sequence[Path]) -> list[str]:
    """The SHA-256 of each file, computed in parallel."""
    with ThreadPoolExecutor(_HASH_THREADS) as pool:
        return list(pool.map(_sha256, paths))


def flush(path: StrPath) -> None:
    """Wait until a file's bytes, or a folder's entries, are on disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write a file so that a kill at any time leaves either the old or the new content."""
    partial = path.with_name(_aside(path.name))
    try:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)
        flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


def write_sealed(path: Path, data: str | bytes) -> Path:
    """Write a file into a checkpoint's folder, and its checksum into SHA256SUMS if there is one.

    A kill at any time leaves the old or the new content, and no checksum that does not match: the
    old one is removed before the content changes.
    """
    sums = path.parent / SUMS
    lines = []
    if sums.is_file():
        lines = [line for line in _sum_lines(path.parent) if _named(line) != path.name]
        if len(lines) < len(_sum_lines(path.parent)):
            write_atomically(sums, "".join(f"{line}\n" for line in lines))
    write_atomically(path, data)
    if sums.is_file():
        lines.append(f"{_sha256(path)}  {path.name}")
        write_atomically(sums, "".join(f"{line}\n" for line in sorted(lines, key=_named)))
    return path


def _aside(name: str) -> str:
    return f".{name}.partial"


def _sum_lines(folder: Path) -> list[str]:
    return (folder / SUMS).read_text(errors="replace").splitlines()


def _named(line: str) -> str:
    """The file that a line of SHA256SUMS is about."""
    return line.partition(" ")[2].lstrip(" *")


def _seal(folder: Path) -> None:
    inside = sorted(folder.rglob("*"))
    paths = [x for x in inside if x.is_file()]
    sums = zip(sha256_of(paths), paths, strict=True)
    lines = (f"{x}  {path.relative_to(folder).as_posix()}\n" for x, path in sums)
    (folder / SUMS).write_text("".join(lines))
    for path in (*inside, folder / SUMS, folder):
        flush(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
