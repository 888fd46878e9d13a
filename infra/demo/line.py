"""The line of requests: one decode at a time, the others wait, and those left alone leave.

Models decode in one thread of their own, so that the server keeps answering meanwhile. A decode
whose client has gone away stops at its next step, and one that has not begun never begins.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from remask.infra.demo.refusal import RefusedError

Result = TypeVar("Result")
Check = Callable[[], None]
"""Raises `StoppedError` if a decode should not go on."""

PLACES = 64
"""Requests in hand at once, from their first byte to their answer."""


class StoppedError(Exception):
    """Raised in a decode that nobody waits for any more."""


class Line:
    """Requests in hand, and the thread that decodes."""

    def __init__(self, places: int = PLACES) -> None:
        self.places = places
        self.taken = 0
        """Requests in hand."""
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decode")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place in the line. Raises RefusedError if there is none."""
        if self.taken >= self.places:
            raise RefusedError(
                503,
                f"{self.taken} requests are waiting already; try again in a moment",
                {"Retry-After": "1"},
            )
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1

    async def run(
        self, work: Callable[[Check], Result], gone: Callable[[], Awaitable[None]]
    ) -> Result:
        """Do `work` in the thread once it is its turn.

        Args:
            work: Called with a check that it should call before each of its steps.
            gone: Returns when the client has gone away.

        Raises `StoppedError` if the client has gone away or the server is ending.
        """
        left = threading.Event()

        def check() -> None:
            if left.is_set() or self._closing.is_set():
                raise StoppedError

        def checked() -> Result:
            check()
            return work(check)

        decode = self._thread.submit(checked)
        result = asyncio.wrap_future(decode)
        leaving = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({result, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not result.done():
                left.set()
                decode.cancel()  # has an effect only if it has not begun
        if decode.cancelled():
            raise StoppedError
        return await result  # a decode holds its place until it has noticed

    def close(self) -> None:
        """Let running and waiting decodes stop."""
        self._closing.set()

    def wait(self) -> None:
        """Return when the thread has ended."""
        self._thread.shutdown(cancel_futures=True)
