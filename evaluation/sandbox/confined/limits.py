"""Limits that a process puts on itself, for good, before it runs anything it does not trust."""

import json
import resource


def restrict(packed: str) -> None:
    """Limit this process by the sandbox's `Limits` as JSON. Without rights there is no way back."""
    limits = json.loads(packed)
    _set(resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"] + 1)  # a signal, then the end
    _set(resource.RLIMIT_AS, limits["memory_mb"] << 20)
    _set(resource.RLIMIT_FSIZE, limits["file_mb"] << 20)
    _set(resource.RLIMIT_NOFILE, limits["open_files"])
    _set(resource.RLIMIT_CORE, 0)
    if limits["is_alone"]:  # else all the user's other processes would count
        _set(resource.RLIMIT_NPROC, limits["threads"])


def _set(kind: int, soft: int, hard: int | None = None) -> None:
    top = resource.getrlimit(kind)[1]
    wanted = [soft, soft if hard is None else hard]
    if top != resource.RLIM_INFINITY:
        wanted = [min(x, top) for x in wanted]
    resource.setrlimit(kind, (wanted[0], wanted[1]))
