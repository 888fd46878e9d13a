"""A loader on a thread of its own, so that the next batches are ready when a step ends."""

import queue
import threading
from collections import deque
from typing import Any

from remask.training.batch import Batch
from remask.training.loader import Loader

CHUNKS_AHEAD = 2
"""Chunks that are assembled ahead of the one in use."""


class Prefetched:
    """Iterates over a loader's steps; a context manager, which ends the thread."""

    def __init__(
        self, loader: Loader, first_step: int = 0, stop: int | None = None, *, pin: bool = False
    ) -> None:
        """Start the thread, for the steps before `stop`; with `pin`, it copies batches to
        page-locked memory."""
        self._chunks, self._pin = loader.chunks(first_step, stop), pin
        self._queue: queue.Queue[Any] = queue.Queue(CHUNKS_AHEAD)
        self._ready: deque[list[Batch]] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="loader")
        self._thread.start()

    def __enter__(self) -> "Prefetched":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> list[Batch]:
        """The micro-batches of the next step; raises what the loader raised."""
        if not self._ready:
            chunk = self._queue.get()
            if isinstance(chunk, BaseException):
                raise chunk
            self._ready.extend(chunk)
        return self._ready.popleft()

    def close(self) -> None:
        """End the thread, and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for chunk in self._chunks:
                if self._pin:
                    chunk = [[batch.pin() for batch in step] for step in chunk]
                if not self._put(chunk):
                    return
        except Exception as error:
            self._put(error)

    def _put(self, item: Any) -> bool:
        """Wait for room in the queue; False once the thread is to end."""
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
