"""Files on a local disk, written whole or not at all.

A file is first written under a partial name, which contains the host and process of its writer, and
then renamed. The partial files of killed writers are recognised by that name.
"""

import contextlib
import errno
import os
import socket
import time
import uuid
from pathlib import Path

from remask.models.checkpoints.folder import flush

PARTIAL = ".partial"
STRAY_AFTER_S = 3600
"""Age at which a partial file of another host counts as abandoned."""


def write_whole(
    target: str, data: bytes, *, is_new: bool = False, flush_folder: bool = True
) -> None:
    """Write a file, in folders that are made as needed.

    Args:
        target: Path of the file.
        data: Its content.
        is_new: Raise FileExistsError instead of replacing a file.
        flush_folder: Make sure that the folder's new entry is on disk too.
    """
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    aside = f"{target}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}{PARTIAL}"
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _link(aside, target)
        else:
            os.replace(aside, target)
        if flush_folder:
            flush(folder)
    finally:
        Path(aside).unlink(missing_ok=True)


def is_stray(path: Path) -> bool:
    """Has the writer of a partial file ended? A writer on another host is given an hour."""
    with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
        *_, host, pid, _, _ = path.name.rsplit(".", 4)
        if host == socket.gethostname():
            return not Path(f"/proc/{int(pid)}").exists() if Path("/proc").exists() else False
        return time.time() - path.stat().st_mtime > STRAY_AFTER_S
    return False


def _link(source: str, target: str) -> None:
    """Give a file a second name; unlike a rename, this fails if the name is taken."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        with open(target, "xb") as file:  # the file system has no hard links
            file.write(Path(source).read_bytes())
            file.flush()
            os.fsync(file.fileno())
