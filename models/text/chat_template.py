"""Chat templates, rendered where they can do no harm: in a process with limits of its own.

A template is a program that comes with a tokenizer. One process renders all that this one needs; it
takes 0.1 s to start, and a tenth of a millisecond for a conversation.
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
    """A chat template that gave no text; the message says why."""


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The text that a chat template makes of its variables.

    Raises:
        TemplateError: It is no template, lacks a variable, refuses the conversation, or takes more
            time or memory than any conversation needs.
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
    """The process that renders; one for each of ours, which a fork may have multiplied."""
    import jinja2
    import markupsafe

    folders = [str(Path(str(x.__file__)).parents[1]) for x in (jinja2, markupsafe)]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(SCRIPT), *folders],  # no packages but those two
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_close, process)
    return process


def _close(process: subprocess.Popen[bytes]) -> int:
    """End a process by ending its input, and give its exit status."""
    atexit.unregister(_close)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()  # pyright: ignore[reportOptionalMemberAccess]
    return process.wait()


def _reason(status: int) -> str:
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"it takes more than {CPU_S} seconds of computing, or too much memory"
    return f"the process that renders it ended with status {status}"
