"""Whether two mathematical answers are equal, by math-verify, in a process of its own.

Evaluating a generated answer, such as a tower of exponents, may never finish, and most of that time
Python runs no signal handler. So a worker process does the comparison, under limits on time and
memory that the kernel enforces. If the worker is killed, the answers count as different and a new
worker is started.
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

START_S = 120.0
"""Time for the worker to start and import its libraries, on a busy machine."""
WALL_FACTOR = 10
"""Wall-clock time allowed per second of CPU time."""
MEMORY_MB = 4096


class AnswerChecker:
    """Compares answers. Use it in a `with` block and for many answers, because its worker takes a
    second to start.

    Args:
        timeout_s: Limit on the CPU time of one comparison, in seconds.
    """

    def __init__(self, *, timeout_s: float = 5.0) -> None:
        if timeout_s <= 0:
            raise ValueError(f"timeout_s must be above 0, got {timeout_s}")
        if importlib.util.find_spec("math_verify") is None:
            raise RuntimeError(
                "answers are compared by math-verify, which is missing; "
                "`pip install 'remask[text]'`"
            )
        self._timeout_s = timeout_s
        self._worker: subprocess.Popen[bytes] | None = None

    def equal(self, gold: str, answer: str) -> bool:
        """Whether an answer equals the right one; false if the comparison exceeds its limits."""
        worker = self._worker or self._start()
        try:
            reply = self._ask(worker, [gold, answer])
        except BaseException:
            self.close()  # a late reply must not be taken for the reply to the next question
            raise
        if reply is None:
            self.close()
        return reply is True

    def close(self) -> None:
        """Kill the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            with worker, contextlib.suppress(BrokenPipeError):
                pass

    def __enter__(self) -> "AnswerChecker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> subprocess.Popen[bytes]:
        # As a file, since importing its package would import torch.
        worker = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve()), str(self._timeout_s)],
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
    """One short line of JSON; None if the worker is gone or late."""
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
    """The worker: reads one pair of answers per line, and writes true or false for each."""
    timeout_s = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # kills the process even during one long product
    compare("1", "1")  # imports and grammars must not count towards the first answer's time
    print("true", flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, timeout_s)
        is_equal = compare(gold, answer)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(is_equal), flush=True)


def compare(gold: str, answer: str) -> bool:
    """Whether two answers are equal, computed in this process without a time limit."""
    from math_verify import LatexExtractionConfig, parse, verify  # slow to import

    # LaTeX only: plain numbers are LaTeX too, so no other parser of math-verify is needed.
    parsed = [
        parse(f"$\\boxed{{{text}}}$", [LatexExtractionConfig()], parsing_timeout=0)
        for text in (gold, answer)
    ]
    return bool(verify(parsed[0], parsed[1], timeout_seconds=0))


if __name__ == "__main__":
    main()
