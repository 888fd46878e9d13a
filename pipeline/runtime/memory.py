"""Memory that stays with the process, for work that takes and frees the same again and again."""

import ctypes

# Of glibc's mallopt.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_memory() -> None:
    """Let malloc keep what is freed: where page faults are slow, fresh pages cost up to a tenth of
    a training step, and a fifth of a shard's build."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1), (_TOP_PAD, 1 << 28)):
            libc.mallopt(option, value)
