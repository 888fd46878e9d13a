"""A worker of the pool: runs inputs in a child of its own, under limits that the kernel enforces.

Everything is imported once; then a child is forked, which reads orders from standard input and
answers on standard output, a line of JSON each. A child that hangs is ended by its timer, one that
takes too much memory by its limit, and one that a native library brings down is gone: the worker
says how it ended and where it was, and forks the next.

    python -m tests.fuzz.worker MODULE FOLDER CPU_SECONDS    # MODULE has TARGETS
"""

import faulthandler
import importlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case, Target, load_case, save_case
from tests.fuzz.verdict import judge, project_place

MEMORY_BYTES = 4 << 30
"""Address space beyond what all imports take."""
FILE_BYTES = 1 << 30
_FRAME = re.compile(r'  File "(.*)", line (\d+) in ')


def main() -> None:
    module, folder, cpu_seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # what native libraries print is no answer
    os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    targets: dict[str, Target] = {x.name: x for x in importlib.import_module(module).TARGETS}
    _write(answers, {"targets": {x.name: x.share for x in targets.values()}})
    trace = folder / "trace"
    while True:
        trace.write_bytes(b"")
        pid = os.fork()
        if pid == 0:
            _limit(trace)
            _Child(targets, folder, cpu_seconds, answers).serve()
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status == 0:
            return
        how = f"signal {-code}" if (code := os.waitstatus_to_exitcode(status)) < 0 else f"{code}"
        _write(answers, {"died": how, "trace": trace.read_text(errors="replace")[-4000:]})


def _limit(trace: Path) -> None:
    file = trace.open("w")
    faulthandler.enable(file)
    faulthandler.register(signal.SIGPROF, file=file, all_threads=True, chain=True)  # then it ends
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Child:
    """Takes orders: inputs by number, a file to replay, an input to save."""

    def __init__(
        self, targets: dict[str, Target], folder: Path, cpu_seconds: float, answers: Any
    ) -> None:
        self._targets, self._folder, self._answers = targets, folder, answers
        self._cpu_seconds = cpu_seconds

    def serve(self) -> None:
        _write(self._answers, {"pid": os.getpid()})
        while order := _read_line():
            if "replay" in order:
                name, case = load_case(Path(order["replay"]))
                self._run(name, case, 0)
            elif "save" in order:
                target = self._targets[order["target"]]
                case = target.case(order["seed"], order["index"])
                save_case(Path(order["save"]), target.name, case, **order["facts"])
                _write(self._answers, {"saved": True})
            else:
                target = self._targets[order["target"]]
                for index in range(*order["range"]):
                    self._run(target.name, target.case(order["seed"], index), index)

    def _run(self, name: str, case: Case, index: int) -> None:
        # A path of its own each time: readers remember what they have read by its path.
        folder = self._folder / f"{name}-{index}"
        shutil.rmtree(folder, ignore_errors=True)  # of a child that died here
        folder.mkdir()
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, self._cpu_seconds)
        try:
            verdict = judge(self._targets[name], case, folder)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = time.process_time() - start
        shutil.rmtree(folder, ignore_errors=True)
        answer = {"index": index, "seconds": round(seconds, 4), "size": case.size}
        _write(self._answers, {**answer, **vars(verdict)})


def place_in_trace(trace: str) -> str:
    """The innermost line of ours, in what faulthandler wrote: innermost first."""
    for name, line in _FRAME.findall(trace):
        if place := project_place(name, int(line)):
            return f" at {place}"
    return ""


def _write(answers: Any, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _read_line() -> dict[str, Any] | None:
    """The next order, not a byte more: the child that follows a dead one reads on."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return None
        line += byte
    return json.loads(line)


if __name__ == "__main__":
    main()
