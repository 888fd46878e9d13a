"""One writer at a time: a lease on a folder, on any storage, that outlives no owner.

    OUTPUT/lease-00000001.json      who holds it, and a beat that changes while the owner lives

A lease is a numbered file that is created exclusively, and the highest number holds. Whoever finds
an owner dead creates the next number, so of several that find it, one takes over. An owner on this
machine is looked up among its processes. Of one elsewhere, the beat is watched for a while by our
own clock, so that clocks need not agree.
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
"""Between two beats of an owner."""
WATCH_S = 15.0
"""An owner elsewhere that does not beat for so long is taken for dead."""


class BusyError(ValueError):
    """Another process holds the lease."""


@dataclass(frozen=True)
class Owner:
    """Who holds a lease."""

    token: str
    host: str
    processes: str
    """Which of the host's process tables the number belongs to: containers have their own."""
    process: int
    started: float
    """By which a number that is used again is told apart."""
    beat: int = 0

    @staticmethod
    def here() -> "Owner":
        process = os.getpid()
        return Owner(
            uuid.uuid4().hex, socket.gethostname(), _process_table(), process, _started(process)
        )

    def is_dead(self) -> bool | None:
        """Whether the process has ended; none where that cannot be seen from here."""
        if not self.processes or self.processes != _process_table():
            return None
        return _started(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lease:
    """What an owner has; see `held`."""

    def __init__(self, storage: Storage, number: int, owner: Owner) -> None:
        self._storage, self._number, self._owner = storage, number, owner
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="lease")
        self._thread.start()

    def check(self) -> None:
        """Raise StorageError if another has taken over, say after this process was suspended."""
        current = _current(self._storage)
        if current is None or current[0] != self._number or current[1].token != self._owner.token:
            raise StorageError(
                f"another process has taken {self._storage.uri} over, for this one was not heard "
                "of; run it again to go on"
            )

    def release(self) -> None:
        self._done.set()
        self._thread.join()
        with contextlib.suppress(StorageError):  # a lease without an owner is taken over
            self._storage.remove([_name(self._number)])

    def _beat(self) -> None:
        while not self._done.wait(BEAT_S):
            self._owner = replace(self._owner, beat=self._owner.beat + 1)
            with contextlib.suppress(StorageError):  # the next beat may get through
                self._storage.write(_name(self._number), _to_bytes(self._owner))


@contextlib.contextmanager
def held(storage: Storage) -> Iterator[Lease]:
    """Hold the lease of a folder; BusyError if a living process has it."""
    lease = _acquire(storage)
    try:
        yield lease
    finally:
        lease.release()


def is_free(storage: Storage) -> bool:
    """Has every owner let go?"""
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
        # Another may have begun anew meanwhile, after the last owner let go.
        others = {n: x for n, x in _owners(storage).items() if n != number + 1}
        if all(n in seen and x.token == seen[n].token for n, x in others.items()):
            storage.remove(map(_name, others))
            return Lease(storage, number + 1, owner)
        storage.remove([_name(number + 1)])
        time.sleep(random.uniform(0, 0.5))


def _wait_until_dead(storage: Storage, owner: Owner) -> None:
    """Return once an owner is dead or has let go; BusyError if it lives."""
    is_dead, deadline = owner.is_dead(), time.monotonic() + WATCH_S
    if is_dead is None:
        say(f"{storage.uri} was last written to by {owner}; seeing if it lives", to_stderr=True)
    while is_dead is None:
        current = _current(storage)
        if current is None or time.monotonic() > deadline:
            return
        if current[1] != owner:  # it beats, or another has it
            break
        time.sleep(BEAT_S / 3)
        is_dead = owner.is_dead()
    if not is_dead:
        raise BusyError(
            f"{storage.uri} is being written to by {owner}; wait for it, stop it, or choose "
            "another output"
        )


def _current(storage: Storage) -> tuple[int, Owner] | None:
    """The highest number, and its owner."""
    owners = _owners(storage)
    return max(owners.items(), key=lambda x: x[0]) if owners else None


def _owners(storage: Storage) -> dict[int, Owner]:
    owners = {}
    for match in filter(None, map(NAME.fullmatch, storage.names(""))):
        with contextlib.suppress(StorageError):  # removed between the two calls
            owners[int(match[1])] = _read(storage.read(match[0]))
    return owners


def _read(data: bytes) -> Owner:
    """An owner; one that cannot be read is of nobody who lives."""
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
    """Names this boot's table of processes as this process sees it; empty where it cannot tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(process: int) -> float:
    """When a process of this machine started; 0 if there is none."""
    import psutil

    try:
        return psutil.Process(process).create_time()
    except psutil.Error:
        return 0.0
