"""Runs a generated program against tests, confined by bubblewrap, and says how it ended.

The program and the judge, who runs the tests, are two processes in two sandboxes, joined by one
socket. The program is asked for values and sends values; it never sees the tests, what they expect,
or the pipe for the verdict. A verdict counts as passed only with the token of this run, which the
judge alone was given. So none of these help a program: ending early with status 0, `os._exit`,
reading its own source, arguments, environment or memory, patching builtins or test helpers, or
objects that claim to equal everything.

What remains possible:
- To pass, a program may do what tests cannot tell from a right answer, such as a table of answers.
- It can read the system's `/usr` and this Python's own files, and learn the time and the kernel.
- A hole in the kernel or in bubblewrap is a hole here. A program of a user that is root outside is
  that same user inside, without any of root's rights.
- Within its limits it may waste time and memory, and about as much of the kernel's for page tables.
- The kernel does not count root's threads: run by root, only a limit around all of this (a
  container's, on processes or memory) bounds what threads take, some 25 KB each.
- Tests see copies: that a program changed a list it was given is not noticed.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from remask.evaluation.sandbox.confinement import Limits, is_available, start

Status = Literal["passed", "failed", "error", "died", "timeout", "memory", "output"]

TAIL = 2000
"""Characters of a program's output that are kept, the last ones."""
GRACE_S = 0.5
"""For a program that hung up to end by itself, so that its exit status tells why."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended."""

    status: Status
    """Wrong answers are `failed`, exceptions `error`, an end before the verdict `died`."""
    detail: str = ""
    """The test that failed, and why."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0


def run_python(
    source: str,
    tests: Sequence[str],
    *,
    names: Sequence[str],
    setup: str = "",
    limits: Limits | None = None,
    unsafe: bool = False,
) -> Outcome:
    """Run a program, then tests that use what it defines.

    Args:
        source: The program. Nobody need have read it.
        tests: Statements that raise where the program is wrong; trusted, and at least one.
        names: What the tests use of the program. All their other names are the judge's own.
        setup: Statements before the tests, such as imports; trusted.
        limits: What the program may use.
        unsafe: Run without a sandbox where there is none. Limits hold; nothing else does.

    Raises:
        RuntimeError: There is no sandbox here, or it would not start.
    """
    if not tests:
        raise ValueError("a program needs at least one test; without tests nothing is proven")
    reason = is_available()
    if reason is not None and not unsafe:
        raise RuntimeError(f"generated code is not run without a sandbox: {reason}")
    limits, token, begun = limits or Limits(), secrets.token_hex(16), time.monotonic()
    task = {"tests": list(tests), "names": list(names), "setup": setup, "token": token}
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(end) for end in socket.socketpair()]
        texts = {"judge": json.dumps(task).encode(), "candidate": source.encode(errors="replace")}
        workers = {
            role: stack.enter_context(start(role, text, end, limits, is_confined=reason is None))
            for (role, text), end in zip(texts.items(), ends, strict=True)
        }
        for end in ends:
            end.close()  # else neither side would hear the other hang up
        watch = _Watch(workers, limits, begun + limits.wall_s)
        stopped = watch.until_verdict()
        exit_status = _exit_status(workers["candidate"])
    seconds = time.monotonic() - begun
    status, detail = _conclude(watch.texts, stopped, exit_status, token, limits, seconds)
    return Outcome(
        status=status,
        detail=detail,
        stdout=_tail(watch.texts["candidate", "stdout"]),
        stderr=_tail(watch.texts["candidate", "stderr"]),
        seconds=seconds,
    )


ESCAPES = """
import os, socket
def read(): open(SECRET).read()
def write(): open(SECRET, "a").close()
def network(): socket.create_connection(("127.0.0.1", PORT), 5).close()
def escapes():
    found = []
    for attempt in (read, write, network):
        try:
            attempt()
            found.append(attempt.__name__)
        except OSError:
            pass
    return ", ".join(found)
"""


def find_escapes(*, unsafe: bool = False) -> str | None:
    """What a program can do here that it must not: read or write a file outside, or reach this
    machine's network; none when it holds. Without a sandbox only if `unsafe`."""
    with (
        tempfile.NamedTemporaryFile() as secret,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        given = f"SECRET, PORT = {secret.name!r}, {server.getsockname()[1]}"
        outcome = run_python(
            f"{given}\n{ESCAPES}",
            ["assert escapes() == '', escapes()"],
            names=["escapes"],
            unsafe=unsafe,
        )
    return None if outcome.status == "passed" else outcome.detail.rpartition(": ")[2]


class _Watch:
    """Reads what both processes write, until there is a verdict or a limit is passed."""

    def __init__(
        self, workers: dict[str, subprocess.Popen[bytes]], limits: Limits, deadline: float
    ) -> None:
        self.texts = {(role, name): b"" for role in workers for name in ("stdout", "stderr")}
        self._most = limits.output_kb << 10
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        for role, name in self.texts:
            self._selector.register(
                getattr(workers[role], name), selectors.EVENT_READ, (role, name)
            )

    def until_verdict(self) -> Literal["timeout", "output"] | None:
        """None when the judge closed its end; else which limit was passed."""
        with self._selector:
            while (left := self._deadline - time.monotonic()) > 0:
                for key, _ in self._selector.select(left):
                    if not self._read(key) and key.data == ("judge", "stdout"):
                        self._read_rest()
                        return None
                if any(len(text) > self._most for text in self.texts.values()):
                    return "output"
        return "timeout"

    def _read(self, key: Any) -> bool:
        data = os.read(key.fd, 1 << 16)
        self.texts[key.data] += data
        if not data:
            self._selector.unregister(key.fileobj)
        return bool(data)

    def _read_rest(self) -> None:
        """What is already there."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                self._read(key)
            if any(len(text) > self._most for text in self.texts.values()):
                return


def _exit_status(process: subprocess.Popen[bytes]) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(GRACE_S)
    return None


def _conclude(
    texts: dict[tuple[str, str], bytes],
    stopped: Literal["timeout", "output"] | None,
    exit_status: int | None,
    token: str,
    limits: Limits,
    seconds: float,
) -> tuple[Status, str]:
    """Status and detail, from all that was seen."""
    if stopped is not None:
        return stopped, f"stopped by {'wall_s' if stopped == 'timeout' else 'output_kb'}"
    lines = texts["judge", "stdout"].decode(errors="replace").splitlines()
    try:
        verdict: dict[str, Any] = json.loads(lines[-1]) if lines else {"status": "absent"}
    except ValueError:
        return "died", "the judge was stopped while it wrote its verdict"
    if verdict.get("status") == "absent":
        said = texts["judge" if not lines else "candidate", "stderr"]
        raise RuntimeError(f"the sandbox did not start: {_tail(said).strip()}")
    status: Status = verdict.get("status") or "died"
    detail = str(verdict.get("detail", "the judge gave up"))
    if status == "passed" and not secrets.compare_digest(str(verdict.get("token")), token):
        return "died", "a verdict without its token"
    if status == "died" and _is_out_of_time(exit_status, limits, seconds):
        return "timeout", "stopped by cpu_s"
    return status, detail


def _is_out_of_time(exit_status: int | None, limits: Limits, seconds: float) -> bool:
    """Killed by the limit of the processor's time, by either of its two signals."""
    ended_by = {
        s: (-s, 128 + s) for s in (signal.SIGXCPU, signal.SIGKILL)
    }  # bare, or through bwrap
    if exit_status in ended_by[signal.SIGXCPU]:
        return True
    return exit_status in ended_by[signal.SIGKILL] and seconds >= limits.cpu_s


def _tail(text: bytes) -> str:
    return text.decode(errors="replace")[-TAIL:]
