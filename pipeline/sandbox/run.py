"""Run a generated program against tests, confined by bubblewrap, and report how it ended.

The program and the judge, which runs the tests, are two processes in two sandboxes, connected by
one socket. The program is asked for values and sends values; it never sees the tests, the expected
results or the pipe for the verdict. A verdict counts as passed only with the token of this run,
which only the judge has. So none of these help a program: exiting early with status 0, `os._exit`,
reading its own source, arguments, environment or memory, patching builtins or test helpers, or
objects that claim to equal everything.

What remains possible:
- A program can pass by anything that tests cannot tell from a right answer, such as a table of the
  answers.
- It can read the system's `/usr` and this Python's files, and learn the time and the kernel.
- A vulnerability of the kernel or of bubblewrap is one of this sandbox. If the user outside is
  root, the program runs as the same user inside, without root's capabilities.
- Within its limits it can waste time and memory, and about as much kernel memory for page tables.
- The kernel does not count root's threads. If root runs this, only an outer limit, such as a
  container's on processes or memory, bounds what threads take, about 25 KB each.
- Tests see copies: a change that the program makes to a list it was given goes unnoticed.
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

from remask.pipeline.sandbox.confinement import Limits, is_available, start

Status = Literal["passed", "failed", "error", "died", "timeout", "memory", "output"]

TAIL = 2000
"""Number of characters kept from the end of a program's output."""
GRACE_S = 0.5
"""Time for a program that closed its socket to exit, so that its exit status gives the reason."""


@dataclass(frozen=True, kw_only=True)
class ProgramOutcome:
    """How a program ended."""

    status: Status
    """`failed` for wrong answers, `error` for exceptions, `died` for an exit before the verdict."""
    detail: str = ""
    """The test that failed, and the reason."""
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
) -> ProgramOutcome:
    """Run a program, then tests that use what it defines.

    Args:
        source: The program; untrusted.
        tests: At least one statement that raises if the program is wrong; trusted.
        names: The program's names that the tests use. All other names are the judge's own.
        setup: Statements before the tests, such as imports; trusted.
        limits: Resource limits of the program. Defaults to `Limits()`.
        unsafe: Run without a sandbox if none is available. Only the limits are enforced then.

    Raises:
        RuntimeError: No sandbox is available, or it did not start.
    """
    if not tests:
        raise ValueError("a program needs at least one test, got none; without one it would pass")
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
            end.close()  # otherwise neither side would notice that the other is gone
        watch = _Watch(workers, limits, begun + limits.wall_s)
        stopped = watch.until_verdict()
        exit_status = _exit_status(workers["candidate"])
    seconds = time.monotonic() - begun
    status, detail = _conclude(watch.texts, stopped, exit_status, token, limits, seconds)
    return ProgramOutcome(
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
    succeeded = []
    for attempt in (read, write, network):
        try:
            attempt()
            succeeded.append(attempt.__name__)
        except OSError:
            pass
    return ", ".join(succeeded)
"""


def find_escapes(*, unsafe: bool = False) -> str | None:
    """What a program can do here that it must not: read or write a file outside, or reach this
    machine's network. None if the sandbox holds. Runs without a sandbox only if `unsafe`."""
    with (
        tempfile.NamedTemporaryFile() as secret,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        constants = f"SECRET, PORT = {secret.name!r}, {server.getsockname()[1]}"
        outcome = run_python(
            f"{constants}\n{ESCAPES}",
            ["assert escapes() == '', escapes()"],
            names=["escapes"],
            unsafe=unsafe,
        )
    return None if outcome.status == "passed" else outcome.detail.rpartition(": ")[2]


class _Watch:
    """Reads the output of both processes until there is a verdict or a limit is exceeded."""

    def __init__(
        self, workers: dict[str, subprocess.Popen[bytes]], limits: Limits, deadline: float
    ) -> None:
        self.texts = {(role, name): b"" for role in workers for name in ("stdout", "stderr")}
        self._max_bytes = limits.output_kb << 10
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        for role, name in self.texts:
            self._selector.register(
                getattr(workers[role], name), selectors.EVENT_READ, (role, name)
            )

    def until_verdict(self) -> Literal["timeout", "output"] | None:
        """Wait for the judge to close its pipe. Returns the limit that was exceeded, if any."""
        with self._selector:
            while (left := self._deadline - time.monotonic()) > 0:
                for key, _ in self._selector.select(left):
                    if not self._read(key) and key.data == ("judge", "stdout"):
                        self._read_rest()
                        return None
                if any(len(text) > self._max_bytes for text in self.texts.values()):
                    return "output"
        return "timeout"

    def _read(self, key: Any) -> bool:
        data = os.read(key.fd, 1 << 16)
        self.texts[key.data] += data
        if not data:
            self._selector.unregister(key.fileobj)
        return bool(data)

    def _read_rest(self) -> None:
        """Read what has already been written."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                self._read(key)
            if any(len(text) > self._max_bytes for text in self.texts.values()):
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
    """Status and detail, from the outputs, the exit status and the time taken."""
    if stopped is not None:
        return stopped, f"stopped by {'wall_s' if stopped == 'timeout' else 'output_kb'}"
    lines = texts["judge", "stdout"].decode(errors="replace").splitlines()
    try:
        verdict: dict[str, Any] = json.loads(lines[-1]) if lines else {"status": "absent"}
    except ValueError:
        return "died", "the judge was stopped while it wrote its verdict"
    if verdict.get("status") == "absent":
        errors = texts["judge" if not lines else "candidate", "stderr"]
        raise RuntimeError(f"the sandbox did not start: {_tail(errors).strip()}")
    status: Status = verdict.get("status") or "died"
    detail = str(verdict.get("detail", "the judge gave up"))
    if status == "passed" and not secrets.compare_digest(str(verdict.get("token")), token):
        return "died", "a verdict without its token"
    if status == "died" and _is_out_of_time(exit_status, limits, seconds):
        return "timeout", "stopped by cpu_s"
    return status, detail


def _is_out_of_time(exit_status: int | None, limits: Limits, seconds: float) -> bool:
    """Whether the process was killed by either of the two signals of the CPU time limit."""
    ended_by = {
        s: (-s, 128 + s) for s in (signal.SIGXCPU, signal.SIGKILL)
    }  # directly, or through bwrap
    if exit_status in ended_by[signal.SIGXCPU]:
        return True
    return exit_status in ended_by[signal.SIGKILL] and seconds >= limits.cpu_s


def _tail(text: bytes) -> str:
    return text.decode(errors="replace")[-TAIL:]
