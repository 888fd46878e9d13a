"""Operations that may be repeated, tried again while their fault may pass."""

import contextlib
import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

ATTEMPTS = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 4.0
LASTING = (
    *(FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(ValueError, TypeError, AttributeError, LookupError, ImportError, NotImplementedError),
)
"""Errors that another attempt would meet again."""
LASTING_NUMBERS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EINVAL, errno.ENOTSUP, errno.EMFILE, errno.ENOSYS),
}

T = TypeVar("T")


class Retries:
    """How often this process tried an operation again, and workers whose counts were added."""

    count = 0


def retried(operation: Callable[[], T]) -> T:
    """The result of an operation that may be repeated; the last error if it keeps failing."""
    for attempt in range(ATTEMPTS):
        try:
            return operation()
        except Exception as error:  # each file system's package has errors of its own
            if attempt == ATTEMPTS - 1 or not _may_pass(error):
                raise
        Retries.count += 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
        time.sleep(pause * random.uniform(0.5, 1.0))  # not all workers at once
    raise AssertionError("unreachable")


def _may_pass(error: Exception) -> bool:
    if isinstance(error, LASTING) or getattr(error, "errno", None) in LASTING_NUMBERS:
        return False
    with contextlib.suppress(ImportError):
        from botocore.exceptions import NoCredentialsError, PartialCredentialsError

        return not isinstance(error, NoCredentialsError | PartialCredentialsError)
    return True
