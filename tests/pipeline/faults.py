"""A storage whose operations fail when they are told to."""

from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem


class FaultyFileSystem(MemoryFileSystem):
    """Memory that asks `fault` before every operation. Like most of fsspec, its `exists` takes a
    fault for a no."""

    protocol = "faulty"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def fault() -> Exception | None:
        return None

    def _ask(self):
        if error := self.fault():
            raise error

    def info(self, path, **kwargs):
        self._ask()
        return super().info(path, **kwargs)

    def ls(self, path, detail=True, **kwargs):
        self._ask()
        return super().ls(path, detail=detail, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        self._ask()
        return super().cat_file(path, start, end, **kwargs)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self._ask()
        super().pipe_file(path, value, mode=mode, **kwargs)

    def rm_file(self, path):
        self._ask()
        super().rm_file(path)
