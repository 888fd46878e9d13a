"""Chat templates, rendered in a separate process with limits on time and memory.

A template is a program that comes with a tokenizer, so it is not trusted. One process renders all
templates; it takes 0.1 s to start and 0.1 ms per conversation.
"""

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remask.models.text.template_process import CPU_S

SCRIPT = Path(__file__).with_name("template_process.py")
_LOCK = threading.Lock()


class TemplateError(ValueError):
    """A chat template could not be rendered; the message says why."""


def render(template: str, variables: Mapping[str, Any]) -> str:
    """Render a chat template with its variables.

    Raises:
        TemplateError: The template is malformed, lacks a variable, refuses the conversation, or
            exceeds the limits of time or memory.
    """
    request = json.dumps({"template": template, "variables": dict(variables)}, default=str)
    with _LOCK:
        process = _process(os.getpid())
        try:
            process.stdin.write(request.encode() + b"\n")  # pyright: ignore[reportOptionalMemberAccess]
            process.stdin.flush()  # pyright: ignore[reportOptionalMemberAccess]
            line = process.stdout.readline()  # pyright: ignore[reportOptionalMemberAccess]
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            _process.cache_clear()
            raise TemplateError(_reason(_close(process)))
    reply = json.loads(line)
    if "error" in reply:
        raise TemplateError(reply["error"])
    return reply["text"]


@functools.lru_cache(maxsize=1)
def _process(pid: int) -> subprocess.Popen[bytes]:
    """The rendering process, one per process id, because a fork must not share its pipes."""
    import jinja2
    import markupsafe

    folders = [str(Path(str(x.__file__)).parents[1]) for x in (jinja2, markupsafe)]
    process = subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            str(SCRIPT),
            *folders,
        ],  # isolated, with these two packages only
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_close, process)
    return process


def _close(process: subprocess.Popen[bytes]) -> int:
    """Close the pipes of a process, which ends it, and return its exit status."""
    atexit.unregister(_close)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
    return process.wait()


def _reason(status: int) -> str:
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it takes more than {CPU_S} seconds of CPU time, or too much memory"
    return f"the process that renders it ended with status {status}"
