"""Processes of a run end when the process that started them ends.

A SIGKILL, from the out-of-memory killer for example, orphans the children of its process: ranks
that keep training, hold the run's lock and report to nobody. So every rank watches the processes
between itself and the command that was typed, and exits once one of them is gone:

    remask train ──► deepspeed ──► deepspeed.launcher.launch ──► rank

A process gets another parent exactly when its own ends, so it is enough to watch the chain of
parents. On hosts that the launcher reaches over ssh, the chain has only the local processes.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import psutil

COMMAND = "REMASK_TRAIN_PID"
"""Environment variable with the process id of `remask train`, where it is on the same machine."""
LAUNCHED = "CROSS_SIZE"
"""Environment variable that DeepSpeed's launcher sets for the ranks it starts."""
POLL_S = 0.25


def end_with_launcher() -> None:
    """Let this rank end with the processes that launched it; does nothing if started by hand."""
    if COMMAND not in os.environ and LAUNCHED not in os.environ:
        return
    above = _parents()
    if COMMAND in os.environ:
        command = os.environ[COMMAND]
        depth = above.index(int(command)) + 1 if command in map(str, above) else 0
    else:
        depth = next((i for i, pid in enumerate(above) if not _is_launcher(pid)), len(above))
    if not depth:
        _end("the launcher")  # it ended while this process was starting
    _watch(above[:depth], "the launcher")


def end_with_parent() -> None:
    """Let this process, with its group if it leads one, end with the process that started it."""
    _watch([os.getppid()], "its rank")


def _watch(above: list[int], what: str) -> None:
    def look() -> None:
        while _parents(len(above)) == above:
            time.sleep(POLL_S)
        _end(what)

    threading.Thread(target=look, name="lifeline", daemon=True).start()


def _end(what: str) -> NoReturn:
    """Exit at once, though the main thread may be writing: incomplete files are written aside."""
    with contextlib.suppress(OSError, ValueError):
        print(f"remask train: {what} has ended; process {os.getpid()} ends too", file=sys.stderr)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _parents(depth: int | None = None) -> list[int]:
    """Ids of the nearest ancestors, nearest first; defaults to all of them."""
    above: list[int] = []
    pid = os.getppid()
    while pid and len(above) != depth:  # 0 is outside the container
        above.append(pid)
        try:
            pid = psutil.Process(pid).ppid()
        except psutil.Error:
            break
    return above


def _is_launcher(pid: int) -> bool:
    """Whether a process is one of DeepSpeed's, by its command line."""
    try:
        words = psutil.Process(pid).cmdline()[:4]
    except psutil.Error:
        return False
    return any(x.startswith("deepspeed.launcher.") or Path(x).name == "deepspeed" for x in words)
