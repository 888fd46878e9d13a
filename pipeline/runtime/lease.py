"""One writer at a time: a lease on a folder, on any storage, that ends with its owner.

    OUTPUT/lease-00000001.json      its owner, and a heartbeat that changes while the owner lives

A lease is a numbered file that is created exclusively; the highest number is valid. A process that
finds the owner dead creates the next number, so exactly one of several such processes takes over.
An owner on this machine is looked up in the process table. For an owner on another machine, the
heartbeat is watched for a while by the local clock, so that clocks need not agree.
"""

import contextlib
import json
import os
import random
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.runtime.terminal import say

NAME = re.compile(r"lease-(\d{8,})\.json")
BEAT_S = 3.0
"""Interval between two heartbeats of an owner."""
WATCH_S = 15.0
"""An owner on another machine without a heartbeat for this long is considered dead."""


class BusyError(ValueError):
    """Another process holds the lease."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lease."""

    token: str
    host: str
    processes: str
    """Identifies the process table that `process` belongs to; containers have their own."""
    process: int
    started: float
    """Start time of the process, which tells apart processes that reuse a number."""
    beat: int = 0

    @staticmethod
    def here() -> "Owner":
        process = os.getpid()
        return Owner(
            uuid.uuid4().hex, socket.gethostname(), _process_table(), process, _started(process)
        )

    def is_dead(self) -> bool | None:
        """Whether the process has ended; None if that cannot be determined on this machine."""
        if not self.processes or self.processes != _process_table():
            return None
        return _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lease:
    """A held lease with its heartbeat; see `held`."""

    def __init__(self, storage: Storage, number: int, owner: Owner) -> None:
        self._storage, self._number, self._owner = storage, number, owner
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="lease")
        self._thread.start()

    def check(self) -> None:
        """Raise StorageError if another process took over, for example while this was suspended."""
        current = _current(self._storage)
        if current is None or current[0] != self._number or current[1].token != self._owner.token:
            raise StorageError(
                f"another process has taken over {self._storage.uri}, because this one had no "
                "heartbeat; run it again to continue"
            )

    def release(self) -> None:
        self._done.set()
        self._thread.join()
        with contextlib.suppress(StorageError):  # a lease whose owner has ended is taken over
            self._storage.remove([_name(self._number)])

    def _beat(self) -> None:
        while not self._done.wait(BEAT_S):
            self._owner = replace(self._owner, beat=self._owner.beat + 1)
            with contextlib.suppress(StorageError):  # the next heartbeat may succeed
                self._storage.write(_name(self._number), _to_bytes(self._owner))


@contextlib.contextmanager
def held(storage: Storage) -> Iterator[Lease]:
    """Hold the lease of a folder; BusyError if a live process has it."""
    lease = _acquire(storage)
    try:
        yield lease
    finally:
        lease.release()


def is_free(storage: Storage) -> bool:
    """Is there no lease on a folder?"""
    return not _owners(storage)


def _acquire(storage: Storage) -> Lease:
    owner = Owner.here()
    while True:
        seen = _owners(storage)
        number = max(seen, default=0)
        if seen:
            _wait_until_dead(storage, seen[number])
        if not storage.create(_name(number + 1), _to_bytes(owner)):
            continue
        # Another process may have started from number 1 after the last owner's release.
        others = {n: x for n, x in _owners(storage).items() if n != number + 1}
        if all(n in seen and x.token == seen[n].token for n, x in others.items()):
            storage.remove(map(_name, others))
            return Lease(storage, number + 1, owner)
        storage.remove([_name(number + 1)])
        time.sleep(random.uniform(0, 0.5))


def _wait_until_dead(storage: Storage, owner: Owner) -> None:
    """Return once an owner is dead or has released the lease; BusyError if it is alive."""
    is_dead, deadline = owner.is_dead(), time.monotonic() + WATCH_S
    if is_dead is None:
        say(f"{storage.uri} is leased by {owner}; checking whether it is alive", to_stderr=True)
    while is_dead is None:
        current = _current(storage)
        if current is None or time.monotonic() > deadline:
            return
        if current[1] != owner:  # a heartbeat, or another owner
            break
        time.sleep(BEAT_S / 3)
        is_dead = owner.is_dead()
    if not is_dead:
        raise BusyError(
            f"{storage.uri} is being written to by {owner}; wait for it, stop it, or choose "
            "another output"
        )


def _current(storage: Storage) -> tuple[int, Owner] | None:
    """The valid lease's number and owner."""
    owners = _owners(storage)
    return max(owners.items(), key=lambda x: x[0]) if owners else None


def _owners(storage: Storage) -> dict[int, Owner]:
    owners = {}
    for match in filter(None, map(NAME.fullmatch, storage.names(""))):
        with contextlib.suppress(StorageError):  # removed between the two calls
            owners[int(match[1])] = _read(storage.read(match[0]))
    return owners


def _read(data: bytes) -> Owner:
    """Parse an owner; a damaged file counts as a dead owner."""
    try:
        values = json.loads(data)
        owner = Owner(**values)
        kinds = (str, str, str, int, float, int)
        if all(type(x) is kind for x, kind in zip(asdict(owner).values(), kinds, strict=True)):
            return owner
    except (ValueError, TypeError, RecursionError):
        pass
    return Owner("", "nowhere", _process_table(), 0, -1.0)


def _name(number: int) -> str:
    return f"lease-{number:08d}.json"


def _to_bytes(owner: Owner) -> bytes:
    return json.dumps(asdict(owner)).encode()


def _process_table() -> str:
    """Identifies the process table of this boot and PID namespace; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(process: int) -> float:
    """Start time of a process of this machine; 0 if there is none."""
    import psutil

    try:
        return psutil.Process(process).create_time()
    except psutil.Error:
        return 0.0
