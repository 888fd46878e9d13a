"""Limits that a process sets on itself irrevocably, before it runs untrusted code."""

import json
import resource


def restrict(packed: str) -> None:
    """Limit this process by the sandbox's `Limits` as JSON. Without privileges, a process cannot
    raise its limits again."""
    limits = json.loads(packed)
    _set(resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"] + 1)  # SIGXCPU, then SIGKILL
    _set(resource.RLIMIT_AS, limits["memory_mb"] << 20)
    _set(resource.RLIMIT_FSIZE, limits["file_mb"] << 20)
    _set(resource.RLIMIT_NOFILE, limits["open_files"])
    _set(resource.RLIMIT_CORE, 0)
    if limits["is_alone"]:  # otherwise the user's other processes would count too
        _set(resource.RLIMIT_NPROC, limits["threads"])


def _set(kind: int, soft: int, hard: int | None = None) -> None:
    top = resource.getrlimit(kind)[1]
    wanted = [soft, soft if hard is None else hard]
    if top != resource.RLIM_INFINITY:
        wanted = [min(x, top) for x in wanted]
    resource.setrlimit(kind, (wanted[0], wanted[1]))
