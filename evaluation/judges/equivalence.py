"""Whether two mathematical answers are equal, by math-verify, in a process of its own.

A generated answer may take for ever to work out, such as a tower of exponents, and much of that
time no signal handler of Python's runs. So a worker process compares, under limits of time and
memory that the kernel enforces; one that dies has found no equality, and the next takes its place.
"""

import contextlib
import importlib.util
import json
import resource
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import remask

START_S = 120.0
"""For the worker to import what it needs, on a busy machine."""
WALL_FACTOR = 10
"""Time on the clock that is given for each second of computing."""
MEMORY_MB = 4096


class Checker:
    """Compares answers; use it in a `with` block, and for many, for its worker takes a second to
    start.

    Args:
        timeout_s: Seconds of computing for one comparison.
    """

    def __init__(self, *, timeout_s: float = 5.0) -> None:
        if timeout_s <= 0:
            raise ValueError(f"timeout_s must be above 0, got {timeout_s}")
        if importlib.util.find_spec("math_verify") is None:
            raise RuntimeError(
                "math-verify is missing, which compares answers; `pip install 'remask[text]'`"
            )
        self._timeout_s = timeout_s
        self._worker: subprocess.Popen[bytes] | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether an answer equals the right one; false when that cannot be decided in time."""
        worker = self._worker or self._start()
        try:
            reply = self._ask(worker, [gold, answer])
        except BaseException:
            self.close()  # it may yet reply to this question, and must not to the next
            raise
        if reply is None:
            self.close()
        return reply is True

    def close(self) -> None:
        """End the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            with worker, contextlib.suppress(BrokenPipeError):
                pass

    def __enter__(self) -> "Checker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        root = str(Path(str(remask.__file__)).parents[1])
        code = f"import sys; sys.path.append({root!r}); import {__name__} as here"
        worker = subprocess.Popen(
            [sys.executable, "-c", f"{code}; here.main()", str(self._timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._worker = worker
        if _read_line(worker, START_S) is None:
            self.close()
            raise RuntimeError("the process that compares answers did not start")
        return worker

    def _ask(self, worker: subprocess.Popen[bytes], question: list[str]) -> bool | None:
        assert worker.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            worker.stdin.write(json.dumps(question).encode() + b"\n")
            worker.stdin.flush()
        return _read_line(worker, self._timeout_s * WALL_FACTOR)


def _read_line(worker: subprocess.Popen[bytes], wait_s: float) -> Any:
    """One short line of JSON; none when the worker is gone or late."""
    assert worker.stdout is not None
    line, deadline = b"", time.monotonic() + wait_s
    with selectors.DefaultSelector() as selector:
        selector.register(worker.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            part = worker.stdout.read1(100)  # pyright: ignore[reportAttributeAccessIssue]
            if not part:
                return None
            line += part
    return json.loads(line)


def main() -> None:
    """The worker: a pair of answers a line on standard input, true or false a line on output."""
    timeout_s = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, even within one long product
    compare("1", "1")  # imports and grammars are loaded outside the time of the first answer
    print("true", flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, timeout_s)
        found = compare(gold, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(found), flush=True)


def compare(gold: str, answer: str) -> bool:
    """Whether two answers are equal, in this process and for as long as it takes."""
    from math_verify import LatexExtractionConfig, parse, verify  # slow to import

    # LaTeX alone: plain numbers are LaTeX too, and no other reader of math-verify's is needed.
    parsed = [
        parse(f"$\\boxed{{{text}}}$", [LatexExtractionConfig()], parsing_timeout=0)
        for text in (gold, answer)
    ]
    return bool(verify(parsed[0], parsed[1], timeout_seconds=0))
