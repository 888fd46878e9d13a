"""Files under any fsspec URI, written whole or not at all.

Every call to a file system passes through one function: transient faults are retried with growing
pauses, all others become a `StorageError` that names the file. All operations here are idempotent:
a repeated write puts the same bytes, and removing a missing file does nothing.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from remask.models.checkpoints.folder import StorageError, check_inside
from remask.models.checkpoints.hub import RepoType, data_files, pinned
from remask.models.checkpoints.hub_name import is_hub_name, parse_hub_name
from remask.pipeline.runtime.local_files import PARTIAL, is_stray, write_whole
from remask.pipeline.runtime.retries import retried

SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable that Ray sets in a submitted job."""
SEAL = ".sha256"
DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".txt")
"""Suffixes of the files that are fetched from data sets on the hub."""
ROOM = "make room or choose another output"
PERMISSIONS = "check the address and your permissions"

T = TypeVar("T")


def file_hash(uri: str) -> str:
    """A short hash of the bytes of a file on any storage; ValueError if it cannot be read."""

    def read(fs: Any, path: str) -> str:
        total = hashlib.sha256()
        with fs.open(path, "rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
        return total.hexdigest()[:16]

    return _read_anywhere(uri, read)


def read_file(uri: str) -> bytes:
    """All bytes of a file on any storage; ValueError if it cannot be read."""
    return _read_anywhere(uri, lambda fs, path: fs.cat_file(path))


def _read_anywhere(uri: str, read: Callable[[Any, str], T]) -> T:
    place = _named_file(uri) if is_hub_name(uri) else uri
    try:
        fs, path = open_file_system(place)
        return retried(lambda: read(fs, path))
    except StorageError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # whatever the file system's package raises
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {uri}: {reason}") from error


def _named_file(name: str) -> str:
    """The path of the file that a name on the hub ends with, fetched."""
    path = parse_hub_name(name).path

    def choose(sizes: Mapping[str, int]) -> list[str]:
        if path not in sizes or not path.endswith(DATA_SUFFIXES):
            raise ValueError(
                f"{name} does not name a data file; write hf:owner/name/FILE with one of "
                f"{sorted(x for x in sizes if x.endswith(DATA_SUFFIXES))[:5]}"
            )
        return [path]

    return str(data_files(name, choose)[0])


def is_absolute(uri: str) -> bool:
    """Does a path or URI mean the same in every process?"""
    return "://" in uri or os.path.isabs(uri)


def absolute(uri: str | None) -> str | None:
    """A path made absolute; `hf:` names get their commit, URIs and None are returned unchanged."""
    if uri is None or is_absolute(uri):
        return uri
    return pinned(uri, "dataset") if is_hub_name(uri) else os.path.abspath(uri)


def absolute_if_here(name: str, repo_type: RepoType = "model") -> str:
    """A path made absolute if it exists; `hf:` names get their commit, and any other name is a hub
    name and returned unchanged."""
    if is_hub_name(name):
        return pinned(name, repo_type)
    return os.path.abspath(name) if os.path.exists(name) else name


def check_kept(key: str, uri: str) -> None:
    """Raise ValueError if an output is a name on the hub, or a relative path in a submitted job,
    whose folder is deleted."""
    if is_hub_name(uri):
        raise ValueError(
            f"{key} {uri} is on the hub; give a folder or a URI, and upload models with "
            "`remask push`"
        )
    if SUBMITTED in os.environ and not is_absolute(uri):
        raise ValueError(
            f"{key} {uri} is relative, and a submitted job's folder is not kept; give an absolute "
            "path or a URI"
        )


def open_file_system(uri: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path in it."""
    if is_hub_name(uri):
        raise ValueError(
            f"{uri} is on the hub, which holds no shards and takes no output; give a folder or a "
            "URI"
        )
    try:
        return fsspec.core.url_to_fs(uri)
    except Exception as error:  # each of some forty file systems raises its own, even TypeErrors
        raise StorageError(
            f"cannot use {uri}: {error or type(error).__name__}; check the address and that its "
            "package is installed"
        ) from error


class Storage:
    """A folder that file names are relative to. It is cheap to make: workers make their own."""

    def __init__(self, uri: str) -> None:
        self._fs, root = open_file_system(uri)
        self._root = root.rstrip("/")
        self.is_local = isinstance(self._fs, LocalFileSystem)
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        self.is_private = protocol == "memory"
        """Whether only this process sees the files, so that Ray's workers cannot be used."""
        self.uri = self._root if self.is_local else self._fs.unstrip_protocol(self._root)

    def path(self, name: str) -> str:
        """The full URI of a file."""
        return f"{self.uri}/{name}"

    def write(self, name: str, data: bytes, *, flush_folder: bool = True) -> None:
        """Write a file. A reader sees all of it or none, even if the writer is killed.

        Args:
            name: Name below this folder.
            data: Content of the file.
            flush_folder: On a local disk, make sure that the folder's new entry is on disk when
                this returns. Not needed for a file whose presence is recorded by a file that is
                written, and flushed, later.
        """
        path = self._at(name)

        def write() -> None:
            if self.is_local:
                write_whole(path, data, flush_folder=flush_folder)
            else:  # object stores show an upload only once it is complete
                self._fs.pipe_file(path, data)

        self._do("write", name, ROOM, write)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists. Returns true for exactly one of several writers.

        Local disks, S3 and memory arbitrate between writers. On a store that does not, the last
        writer wins, so a caller should read the file back before it relies on the result.
        """
        path = self._at(name)

        def attempt() -> bool:
            try:
                if self.is_local:
                    write_whole(path, data, is_new=True)
                else:
                    self._fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return self._fs.cat_file(path) == data  # an earlier attempt may have succeeded
            except Exception as error:  # some S3 servers have no conditional writes
                if self.is_local or "NotImplemented" not in f"{type(error).__name__} {error}":
                    raise
                if self._fs.exists(path):
                    return self._fs.cat_file(path) == data
                self._fs.pipe_file(path, data)
            return True

        return self._do("write", name, ROOM, attempt)

    def write_sealed(self, name: str, data: bytes) -> None:
        """Write a file with a checksum beside it, which is written first and checked on reading."""
        digest = hashlib.sha256(data).hexdigest()
        seal = f"{digest}  {name.rsplit('/', 1)[-1]}\n".encode()
        self.write(f"{name}{SEAL}", seal, flush_folder=False)
        self.write(name, data)

    def read_sealed(self, name: str) -> bytes:
        """Read a file that `write_sealed` wrote; StorageError if its bytes have changed."""
        data = self.read(name)
        seal = self.read(f"{name}{SEAL}").split(maxsplit=1)
        if seal[:1] != [hashlib.sha256(data).hexdigest().encode()]:
            raise StorageError(
                f"{self.path(name)} was altered: its checksum differs from the {SEAL} file beside "
                "it; remove both and run it again"
            )
        return data

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        path = self._at(name)
        try:
            return self._do("read", name, "check that it is there", lambda: self._fs.cat_file(path))
        except FileNotFoundError as error:
            raise StorageError(f"{self.path(name)} is missing; run the build again") from error

    def read_all(self, names: Sequence[str]) -> list[bytes]:
        """The bytes of several files, fetched concurrently if the storage supports it."""
        if not names:
            return []
        paths = {name: self._at(name) for name in names}

        def fetch() -> dict[str, bytes]:
            return self._fs.cat(list(paths.values()), on_error="omit")

        contents = self._do("read", "", PERMISSIONS, fetch)
        return [
            data if isinstance(data := contents.get(path), bytes) else self.read(name)
            for name, path in paths.items()
        ]

    def sizes(self, folder: str) -> dict[str, int]:
        """Size in bytes of each file directly in a folder, without partial files."""
        return {n: size for n, size in self._list(folder).items() if not n.endswith(PARTIAL)}

    def names(self, folder: str) -> set[str]:
        """Names of the files directly in a folder, without partial files."""
        return set(self.sizes(folder))

    def sealed_names(self, folder: str) -> set[str]:
        """Names of the files in a folder that `write_sealed` has finished."""
        names = self.names(folder)
        return {name for name in names if f"{name}{SEAL}" in names}

    def exists(self, name: str) -> bool:
        """Is there a file or folder of this name? The empty name is this folder itself."""
        path = self._at(name) if name else self._root
        self._fs.invalidate_cache()
        try:  # fsspec's own `exists` returns false for any fault
            self._do("look for", name, PERMISSIONS, lambda: self._info(path))
        except FileNotFoundError:
            return False
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored."""
        paths = {name: self._at(name) for name in names}
        if not self.is_local and len(paths) > 1:
            with contextlib.suppress(Exception):  # fall back to one by one, each with retries
                return self._fs.rm(list(paths.values()))
        for name, path in paths.items():
            with contextlib.suppress(FileNotFoundError):
                self._do("remove", name, PERMISSIONS, lambda path=path: self._unlink(path))

    def strays(self, folder: str) -> list[str]:
        """Names of a folder's partial files whose writer has ended."""
        at = Path(self._root) / folder
        return [n for n in self._list(folder) if n.endswith(PARTIAL) and is_stray(at / n)]

    def sweep(self, folder: str) -> None:
        """Remove the partial files of killed writers."""
        self.remove([f"{folder}/{name}".lstrip("/") for name in self.strays(folder)])

    def _at(self, name: str) -> str:
        try:
            if any(x in name for x in "*?["):  # fsspec would expand them
                raise ValueError(f"{name!r} has wildcards, which a file name here may not have")
            return f"{self._root}/{check_inside(name)}"
        except ValueError as error:
            raise StorageError(f"{self.uri}: {error}") from error

    def _info(self, path: str) -> None:
        try:
            self._fs.info(path)
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error

    def _unlink(self, path: str) -> None:
        if self.is_local:
            Path(path).unlink()
        else:
            self._fs.rm_file(path)

    def _list(self, folder: str) -> dict[str, int]:
        path = self._at(folder) if folder else self._root
        self._fs.invalidate_cache()
        try:
            entries = self._do("list", folder, PERMISSIONS, lambda: self._fs.ls(path, detail=True))
        except FileNotFoundError:
            return {}
        return {x["name"].rsplit("/", 1)[-1]: x["size"] for x in entries if x["type"] == "file"}

    def _do(self, what: str, name: str, advice: str, operation: Callable[[], T]) -> T:
        """Run an operation on the file system, with retries and errors that name the file.

        A FileNotFoundError of an operation other than a write is left to the caller.
        """
        try:
            return retried(operation)
        except Exception as error:  # whatever the file system's package raises
            if isinstance(error, FileNotFoundError) and what != "write":
                raise
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise StorageError(f"cannot {what} {self.path(name)}: {reason}; {advice}") from error
