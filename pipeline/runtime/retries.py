"""Retries of idempotent operations whose faults may be transient."""

import contextlib
import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

ATTEMPTS = 8
FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 4.0
PERMANENT = (
    *(FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(ValueError, TypeError, AttributeError, LookupError, ImportError, NotImplementedError),
)
"""Errors that a retry cannot overcome."""
PERMANENT_NUMBERS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EINVAL, errno.ENOTSUP, errno.EMFILE, errno.ENOSYS),
}

T = TypeVar("T")


class Retries:
    """The number of retries by this process, plus those that its workers report."""

    count = 0


def retried(operation: Callable[[], T]) -> T:
    """The result of an idempotent operation; raises its last error if it keeps failing."""
    for attempt in range(ATTEMPTS):
        try:
            return operation()
        except Exception as error:  # each file system's package raises its own errors
            if attempt == ATTEMPTS - 1 or not _is_transient(error):
                raise
        Retries.count += 1
        pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
        time.sleep(pause * random.uniform(0.5, 1.0))  # so that workers do not retry in lockstep
    raise AssertionError("unreachable")


def _is_transient(error: Exception) -> bool:
    if isinstance(error, PERMANENT) or getattr(error, "errno", None) in PERMANENT_NUMBERS:
        return False
    with contextlib.suppress(ImportError):
        from botocore.exceptions import NoCredentialsError, PartialCredentialsError

        return not isinstance(error, NoCredentialsError | PartialCredentialsError)
    return True
