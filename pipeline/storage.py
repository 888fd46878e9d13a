"""Files under any fsspec URI, written whole or not at all."""

import contextlib
import hashlib
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Set by Ray in a submitted job."""
PARTIAL = ".partial"
STRAY_AFTER_S = 3600


class StorageError(RuntimeError):
    """Reading or writing failed; the message names the file and what to do."""


def file_hash(uri: str) -> str:
    """A short hash of a file's bytes, wherever it is."""
    total = hashlib.sha256()
    try:
        fs, path = fsspec.core.url_to_fs(uri)
        with fs.open(path, "rb") as file:
            while block := file.read(1 << 20):
                total.update(block)
    except OSError as error:
        raise ValueError(f"cannot read {uri}: {error.strerror or error}") from error
    return total.hexdigest()[:16]


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


def storage_failures() -> tuple[type[BaseException], ...]:
    """What file systems raise when they fail; S3's own errors are no OSErrors."""
    with contextlib.suppress(ImportError):
        from botocore.exceptions import BotoCoreError, ClientError

        return OSError, BotoCoreError, ClientError
    return (OSError,)


class Storage:
    """A folder that names are relative to. Cheap to make, so workers make their own."""

    def __init__(self, uri: str) -> None:
        try:
            self._fs, root = fsspec.core.url_to_fs(uri)
        except (ValueError, ImportError) as error:
            raise StorageError(f"cannot use {uri}: {error}") from error
        self._root = root.rstrip("/")
        self.is_local = isinstance(self._fs, LocalFileSystem)
        protocol = self._fs.protocol if isinstance(self._fs.protocol, str) else self._fs.protocol[0]
        self.is_private = protocol == "memory"
        """Seen by this process alone, so Ray cannot help."""
        self.uri = self._root if self.is_local else self._fs.unstrip_protocol(self._root)

    def path(self, name: str) -> str:
        """The full URI of a file, for other readers."""
        return f"{self.uri}/{name}"

    def write(self, name: str, data: bytes) -> None:
        """Write a file: a reader sees all of it or none, whenever we are killed."""
        with self._named("write", name, "make room or choose another output"):
            if self.is_local:
                self._write_local(f"{self._root}/{name}", data)
            else:  # object stores show an upload once it is complete
                self._fs.pipe_file(f"{self._root}/{name}", data)

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        with self._named("read", name, "check that it is there"):
            try:
                return self._fs.cat_file(f"{self._root}/{name}")
            except FileNotFoundError as error:
                raise StorageError(f"{self.path(name)} is missing; run the build again") from error

    def read_all(self, names: Iterable[str]) -> list[bytes]:
        """The bytes of several files, fetched together where the storage can."""
        paths = [f"{self._root}/{name}" for name in names]
        with self._named("read", "", "check that it is there"):
            found = self._fs.cat(paths) if paths else {}
        return list(found.values()) if isinstance(found, dict) else [found]

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file directly in a folder, half-written ones left out."""
        return {n: size for n, size in self._list(folder).items() if not n.endswith(PARTIAL)}

    def names(self, folder: str) -> set[str]:
        """Names of the files directly in a folder, half-written ones left out."""
        return set(self.sizes(folder))

    def exists(self, name: str) -> bool:
        with self._named("look for", name, "check the address and your rights"):
            return self._fs.exists(f"{self._root}/{name}")

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are gone already do not matter."""
        paths = [f"{self._root}/{name}" for name in names]
        with self._named("remove from", "", "check your rights"):
            if not self.is_local and paths:
                self._fs.rm(paths)
            for path in paths if self.is_local else ():
                Path(path).unlink(missing_ok=True)

    def strays(self, folder: str) -> list[str]:
        """Half-written files whose writer is dead, or has had an hour."""
        return [n for n in self._list(folder) if n.endswith(PARTIAL) and self._is_stray(folder, n)]

    def sweep(self, folder: str) -> None:
        """Remove what killed writers left half-written."""
        self.remove([f"{folder}/{name}" for name in self.strays(folder)])

    def _write_local(self, target: str, data: bytes) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        aside = f"{target}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}{PARTIAL}"
        try:
            with open(aside, "wb") as file:
                file.write(data)
            os.replace(aside, target)
        finally:
            Path(aside).unlink(missing_ok=True)

    def _is_stray(self, folder: str, name: str) -> bool:
        path = Path(f"{self._root}/{folder}/{name}")
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            *_, host, pid, _, _ = name.rsplit(".", 4)
            if host == socket.gethostname():
                return not Path(f"/proc/{int(pid)}").exists() if Path("/proc").exists() else False
            return time.time() - path.stat().st_mtime > STRAY_AFTER_S
        return False

    def _list(self, folder: str) -> dict[str, int]:
        self._fs.invalidate_cache()
        with self._named("list", folder, "check the address and your rights"):
            try:
                found = self._fs.ls(f"{self._root}/{folder}", detail=True)
            except FileNotFoundError:
                return {}
        return {x["name"].rsplit("/", 1)[-1]: x["size"] for x in found if x["type"] == "file"}

    @contextlib.contextmanager
    def _named(self, what: str, name: str, advice: str) -> Iterator[None]:
        """Failures of the file system, in one line."""
        try:
            yield
        except storage_failures() as error:
            reason = getattr(error, "strerror", None) or error
            raise StorageError(f"cannot {what} {self.path(name)}: {reason}; {advice}") from error
