"""Files under any fsspec URI, written whole or not at all.

Every call to a file system passes one gate: faults that may pass are tried again with growing
pauses, all others become a `StorageError` that names the file. All operations here may be repeated
safely: a write puts the same bytes, and a removal of what is gone does nothing.
"""

import contextlib
import errno
import hashlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from remask.models.checkpoints.folder import check_inside, flush
from remask.pipeline.runtime.retries import retried

SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in a submitted job."""
PARTIAL, SEAL = ".partial", ".sha256"
STRAY_AFTER_S = 3600
ROOM = "make room or choose another output"
RIGHTS = "check the address and your rights"

T = TypeVar("T")


class StorageError(RuntimeError):
    """Reading or writing failed; the message names the file and what to do."""


def file_hash(uri: str) -> str:
    """A short hash of a file's bytes, wherever it is; ValueError if it cannot be read."""

    def read(fs: Any, path: str) -> str:
        total = hashlib.sha256()
        with fs.open(path, "rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
        return total.hexdigest()[:16]

    return _read_anywhere(uri, read)


def read_file(uri: str) -> bytes:
    """All bytes of a file, wherever it is; ValueError if it cannot be read."""
    return _read_anywhere(uri, lambda fs, path: fs.cat_file(path))


def _read_anywhere(uri: str, read: Callable[[Any, str], T]) -> T:
    try:
        fs, path = open_file_system(uri)
        return retried(lambda: read(fs, path))
    except StorageError as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # whatever the file system's package raises
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {uri}: {reason}") from error


def is_absolute(uri: str) -> bool:
    """Does a path or URI mean the same in every process?"""
    return "://" in uri or os.path.isabs(uri)


def absolute(uri: str | None) -> str | None:
    """The same place, named from anywhere on this machine."""
    return uri if uri is None or is_absolute(uri) else os.path.abspath(uri)


def absolute_if_here(name: str) -> str:
    """The same for what may as well be a hub name, which it is where there is no such path."""
    return os.path.abspath(name) if os.path.exists(name) else name


def check_kept(key: str, uri: str) -> None:
    """Raise ValueError where a relative path would lie in a submitted job's own folder."""
    if SUBMITTED in os.environ and not is_absolute(uri):
        raise ValueError(
            f"{key} {uri} is relative, and a submitted job's folder is not kept; give an absolute "
            "path or a URI"
        )


def open_file_system(uri: str) -> tuple[Any, str]:
    """The file system of a path or URI, and the path in it."""
    try:
        return fsspec.core.url_to_fs(uri)
    except Exception as error:  # each of some forty kinds has its own, TypeErrors among them
        raise StorageError(
            f"cannot use {uri}: {error or type(error).__name__}; check the address and that its "
            "package is installed"
        ) from error


def _link(source: str, target: str) -> None:
    """Give a file another name; unlike a rename, it fails where there is a file of that name."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        with open(target, "xb") as file:  # a file system without links
            file.write(Path(source).read_bytes())
            file.flush()
            os.fsync(file.fileno())


class Storage:
    """A folder that names are relative to. Cheap to make, so workers make their own."""

    def __init__(self, uri: str) -> None:
        self._fs, root = open_file_system(uri)
        self._root = root.rstrip("/")
        self.is_local = isinstance(self._fs, LocalFileSystem)
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        self.is_private = protocol == "memory"
        """Seen by this process alone, so Ray cannot help."""
        self.uri = self._root if self.is_local else self._fs.unstrip_protocol(self._root)

    def path(self, name: str) -> str:
        """The full URI of a file, for other readers."""
        return f"{self.uri}/{name}"

    def write(self, name: str, data: bytes, *, flush_folder: bool = True) -> None:
        """Write a file: a reader sees all of it or none, whenever we are killed.

        Args:
            name: Below this folder.
            data: All of it.
            flush_folder: On a disk, have it hold the new name too when this returns. Not needed
                where a file written later, and flushed so, says that this one is there.
        """
        path = self._at(name)

        def write() -> None:
            if self.is_local:
                self._write_local(path, data, flush_folder=flush_folder)
            else:  # object stores show an upload once it is complete
                self._fs.pipe_file(path, data)

        self._do("write", name, ROOM, write)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one; of several writers, one gets true.

        Local disks, S3 and memory decide between writers themselves. On a store that cannot, the
        last one wins, so look again before relying on it.
        """
        path = self._at(name)

        def attempt() -> bool:
            try:
                if self.is_local:
                    self._write_local(path, data, is_new=True)
                else:
                    self._fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return self._fs.cat_file(path) == data  # an attempt that seemed to fail
            except Exception as error:  # some that speak S3 know no conditions
                if self.is_local or "NotImplemented" not in f"{type(error).__name__} {error}":
                    raise
                if self._fs.exists(path):
                    return self._fs.cat_file(path) == data
                self._fs.pipe_file(path, data)
            return True

        return self._do("write", name, ROOM, attempt)

    def write_sealed(self, name: str, data: bytes) -> None:
        """Write a file that is checked when it is read; its checksum goes first, beside it."""
        digest = hashlib.sha256(data).hexdigest()
        seal = f"{digest}  {name.rsplit('/', 1)[-1]}\n".encode()
        self.write(f"{name}{SEAL}", seal, flush_folder=False)
        self.write(name, data)

    def read_sealed(self, name: str) -> bytes:
        """What `write_sealed` wrote; StorageError if a byte of it has changed."""
        data = self.read(name)
        wanted = self.read(f"{name}{SEAL}").split(maxsplit=1)
        if wanted[:1] != [hashlib.sha256(data).hexdigest().encode()]:
            raise StorageError(
                f"{self.path(name)} was altered: its checksum is not that of {SEAL[1:]} beside it; "
                "remove both and run it again"
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
        """The bytes of several files, fetched together where the storage can."""
        if not names:
            return []
        paths = {name: self._at(name) for name in names}

        def fetch() -> dict[str, bytes]:
            return self._fs.cat(list(paths.values()), on_error="omit")

        together = self._do("read", "", RIGHTS, fetch)
        return [
            data if isinstance(data := together.get(path), bytes) else self.read(name)
            for name, path in paths.items()
        ]

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file directly in a folder, half-written ones left out."""
        return {n: size for n, size in self._list(folder).items() if not n.endswith(PARTIAL)}

    def names(self, folder: str) -> set[str]:
        """Names of the files directly in a folder, half-written ones left out."""
        return set(self.sizes(folder))

    def sealed_names(self, folder: str) -> set[str]:
        """Names of the files in a folder that `write_sealed` has finished."""
        names = self.names(folder)
        return {name for name in names if f"{name}{SEAL}" in names}

    def exists(self, name: str) -> bool:
        path = self._at(name) if name else self._root
        self._fs.invalidate_cache()
        try:  # `exists` of fsspec takes any fault for a no
            self._do(
                "look for", name, "check the address and your rights", lambda: self._info(path)
            )
        except FileNotFoundError:
            return False
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone already do not matter."""
        paths = {name: self._at(name) for name in names}
        if not self.is_local and len(paths) > 1:
            with contextlib.suppress(Exception):  # then one by one, each tried again
                return self._fs.rm(list(paths.values()))
        for name, path in paths.items():
            with contextlib.suppress(FileNotFoundError):
                self._do("remove", name, RIGHTS, lambda path=path: self._unlink(path))

    def strays(self, folder: str) -> list[str]:
        """Half-written files whose writer is dead, or has had an hour."""
        return [n for n in self._list(folder) if n.endswith(PARTIAL) and self._is_stray(folder, n)]

    def sweep(self, folder: str) -> None:
        """Remove what killed writers left half-written."""
        self.remove([f"{folder}/{name}".lstrip("/") for name in self.strays(folder)])

    def _at(self, name: str) -> str:
        try:
            if any(x in name for x in "*?["):  # fsspec would look for several files
                raise ValueError(f"{name!r} has wildcards, which names of files here never have")
            return f"{self._root}/{check_inside(name)}"
        except ValueError as error:
            raise StorageError(f"{self.uri}: {error}") from error

    def _write_local(
        self, target: str, data: bytes, *, is_new: bool = False, flush_folder: bool = True
    ) -> None:
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        aside = f"{target}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}{PARTIAL}"
        try:
            with open(aside, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                _link(aside, target)
            else:
                os.replace(aside, target)
            if flush_folder:
                flush(folder)
        finally:
            Path(aside).unlink(missing_ok=True)

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

    def _is_stray(self, folder: str, name: str) -> bool:
        path = Path(f"{self._root}/{folder}/{name}")
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            *_, host, pid, _, _ = name.rsplit(".", 4)
            if host == socket.gethostname():
                return not Path(f"/proc/{int(pid)}").exists() if Path("/proc").exists() else False
            return time.time() - path.stat().st_mtime > STRAY_AFTER_S
        return False

    def _list(self, folder: str) -> dict[str, int]:
        path = self._at(folder) if folder else self._root
        self._fs.invalidate_cache()
        try:
            entries = self._do("list", folder, RIGHTS, lambda: self._fs.ls(path, detail=True))
        except FileNotFoundError:
            return {}
        return {x["name"].rsplit("/", 1)[-1]: x["size"] for x in entries if x["type"] == "file"}

    def _do(self, what: str, name: str, advice: str, operation: Callable[[], T]) -> T:
        """The one gate to the file system; a file that is missing is the caller's to judge."""
        try:
            return retried(operation)
        except Exception as error:  # whatever the file system's package raises
            if isinstance(error, FileNotFoundError) and what != "write":
                raise
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise StorageError(f"cannot {what} {self.path(name)}: {reason}; {advice}") from error
