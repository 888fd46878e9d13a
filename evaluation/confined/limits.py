"""Limits that a process puts on itself, for good, before it runs anything it does not trust."""

import json
import resource
from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a generated program may use."""

    cpu_s: int = 10
    """Seconds of computing."""
    wall_s: float = 30.0
    """Seconds in all, start-up too."""
    memory_mb: int = 512
    """Address space of the program."""
    threads: int = 16
    """Further processes are refused altogether where the kernel can be told so."""
    file_mb: int = 16
    """Of one file, and of all files in its folder together."""
    open_files: int = 64
    output_kb: int = 256
    """Of its standard output and its standard error, each."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")


def pack(limits: Limits, *, is_alone: bool) -> str:
    """As an argument for `restrict`; `is_alone` where no others of this user are counted."""
    return json.dumps(asdict(limits) | {"is_alone": is_alone})


def restrict(packed: str) -> None:
    """Limit this process by what `pack` gave. Without privileges there is no way back."""
    found = json.loads(packed)
    is_alone = found.pop("is_alone")
    limits = Limits(**found)
    _set(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)  # a signal, then the end
    _set(resource.RLIMIT_AS, limits.memory_mb << 20)
    _set(resource.RLIMIT_FSIZE, limits.file_mb << 20)
    _set(resource.RLIMIT_NOFILE, limits.open_files)
    _set(resource.RLIMIT_CORE, 0)
    if is_alone:
        _set(resource.RLIMIT_NPROC, limits.threads)


def _set(kind: int, soft: int, hard: int | None = None) -> None:
    top = resource.getrlimit(kind)[1]
    wanted = [soft, soft if hard is None else hard]
    if top != resource.RLIM_INFINITY:
        wanted = [min(x, top) for x in wanted]
    resource.setrlimit(kind, (wanted[0], wanted[1]))
