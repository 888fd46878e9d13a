"""Files under any fsspec URI, written whole or not at all."""

import hashlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

PARTIAL = ".partial"


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
        target = f"{self._root}/{name}"
        try:
            self._fs.makedirs(os.path.dirname(target), exist_ok=True)
            if not self.is_local:
                self._fs.pipe_file(target, data)  # object stores show an upload once it is complete
                return
            aside = f"{target}.{uuid.uuid4().hex[:8]}{PARTIAL}"
            try:
                with open(aside, "wb") as file:
                    file.write(data)
                os.replace(aside, target)
            finally:
                Path(aside).unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise StorageError(
                f"cannot write {self.path(name)}: {reason}; make room or choose another output"
            ) from error

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        try:
            return self._fs.cat_file(f"{self._root}/{name}")
        except FileNotFoundError as error:
            raise StorageError(f"{self.path(name)} is missing; build it again") from error
        except OSError as error:
            raise StorageError(
                f"cannot read {self.path(name)}: {error.strerror or error}"
            ) from error

    def names(self, folder: str) -> set[str]:
        """Names of the files directly in a folder, half-written ones left out."""
        return {name for name in self._list(folder) if not name.endswith(PARTIAL)}

    def exists(self, name: str) -> bool:
        return self._fs.exists(f"{self._root}/{name}")

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._fs.rm_file(f"{self._root}/{name}")

    def sweep(self, folder: str) -> None:
        """Remove what killed writers left half-written."""
        self.remove(f"{folder}/{name}" for name in self._list(folder) if name.endswith(PARTIAL))

    def _list(self, folder: str) -> list[str]:
        self._fs.invalidate_cache()
        path = f"{self._root}/{folder}"
        try:
            found = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        return [x["name"].rsplit("/", 1)[-1] for x in found if x["type"] == "file"]
