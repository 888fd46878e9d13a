"""Processes confined by bubblewrap: own namespaces, a read-only system, resource limits."""

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Annotated

from remask.models.ranges import Range, check_fields
from remask.pipeline.sandbox.syscalls import make_filter

HOW_TO_INSTALL = (
    "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`) on a machine that "
    "lets users make namespaces, or pass unsafe=True to run generated code without protection"
)
ABOVE_0 = Range("(0, inf)")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits of a generated program."""

    cpu_s: Annotated[int, ABOVE_0] = 10
    """CPU time, in seconds."""
    wall_s: Annotated[float, ABOVE_0] = 30.0
    """Wall-clock time including start-up, in seconds."""
    memory_mb: Annotated[int, ABOVE_0] = 512
    """Address space of the program."""
    threads: Annotated[int, ABOVE_0] = 16
    """Number of threads. The kernel does not enforce it for root. Further processes are refused
    altogether on kernels whose system calls can be filtered."""
    file_mb: Annotated[int, ABOVE_0] = 16
    """Size of one file, and of all files in the program's folder together."""
    files: Annotated[int, ABOVE_0] = 1024
    """Number of files, folders and links in the program's folder; even empty ones take kernel
    memory."""
    open_files: Annotated[int, ABOVE_0] = 64
    """Number of files open at once."""
    output_kb: Annotated[int, ABOVE_0] = 256
    """Size of the standard output, and of the standard error."""

    def __post_init__(self) -> None:
        check_fields(self)


@functools.lru_cache(maxsize=1)
def is_available() -> str | None:
    """None if programs can be confined; otherwise the reason why not and what to do."""
    if shutil.which("bwrap") is None:
        return f"bubblewrap is missing; {HOW_TO_INSTALL}"
    with _system_call_filter() as options, tempfile.TemporaryDirectory() as folder:
        confinement = [*_confinement(Limits(), folder), *options.arguments, "--"]
        done = subprocess.run(
            [*confinement, _python(), *FLAGS, "-c", ""],
            pass_fds=options.numbers,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    if done.returncode == 0:
        return None
    errors = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"bubblewrap does not work here ({errors[0]}); {HOW_TO_INSTALL}"


FLAGS = ("-s", "-S", "-P", "-B", "-u", "-X", "utf8")  # unbuffered: a killed process loses none
"""No site packages, no imports from the current folder, no bytecode written."""
HARNESS = Path(__file__).parent / "confined"
PACKAGE = "remask.pipeline.sandbox.confined"


def _python() -> str:
    return os.path.realpath(sys.executable)


def _confinement(limits: Limits, folder: str) -> list[str]:
    """The bwrap command: own namespaces, a read-only system, one small writable folder.

    There is no /proc, because nothing needs it. The root and /dev are held in memory too, so they
    are made read-only.

    Args:
        limits: Resource limits of the program.
        folder: An empty folder; in the sandbox, the writable folder is mounted over it.
    """
    command = _small_folder(limits, folder)
    command += ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    command += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0"]  # sets iterate in the same order
    command += ["--ro-bind", "/usr", "/usr"]
    for libraries in ("/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(libraries):
            command += ["--symlink", os.readlink(libraries), libraries]
        else:
            command += ["--ro-bind-try", libraries, libraries]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    prefix = os.path.realpath(sys.base_prefix)
    if not Path(prefix).is_relative_to("/usr"):
        command += ["--ro-bind", prefix, prefix]
    command += ["--ro-bind", str(HARNESS), f"/harness/{PACKAGE.replace('.', '/')}"]
    command += ["--dev", "/dev", "--remount-ro", "/dev"]
    command += ["--bind", folder, "/work", "--chdir", "/work"]
    return [*command, "--remount-ro", "/"]


def _small_folder(limits: Limits, folder: str) -> list[str]:
    """A command prefix that mounts memory of limited size and number of inodes on `folder`.

    bwrap's own `--tmpfs` limits the size only, and a million empty folders take 2 GB of kernel
    memory. So an outer bwrap makes a namespace in which this user may mount, and nothing else.
    """
    size = f"size={limits.file_mb << 20},nr_inodes={limits.files + 1},mode=700"  # 1: the root
    command = ["bwrap", "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
    command += ["--die-with-parent", "--dev-bind", "/", "/", "--"]
    mount = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
    return [*command, "sh", "-c", mount, "sh", size, folder]


@dataclass
class _Options:
    arguments: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


@contextlib.contextmanager
def _system_call_filter() -> Iterator[_Options]:
    """The bwrap options that pass the filter, as an open file."""
    program = make_filter()
    if program is None:
        yield _Options()
        return
    with _readable(program) as file:
        yield _Options(["--seccomp", str(file.fileno())], [file.fileno()])


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[IO[bytes]]:
    """Bytes as an open file, read-only and unnamed for the process that gets it."""
    with tempfile.NamedTemporaryFile() as written:
        written.write(data)
        written.flush()
        with open(written.name, "rb") as file:
            yield file


@contextlib.contextmanager
def start(
    role: str, text: bytes, end: socket.socket, limits: Limits, *, is_confined: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Start one of the two processes, `judge` or `candidate`. On exit, the process and all that it
    started are killed."""
    arguments = [str(end.fileno()), json.dumps(asdict(limits) | {"is_alone": is_confined})]
    with (
        _readable(text) as stdin,
        _system_call_filter() as options,
        tempfile.TemporaryDirectory() as folder,
        harness() as outside,
    ):
        root = "/harness" if is_confined else outside
        code = f"import sys; sys.path.append({root!r}); import {PACKAGE}.{role} as x; x.main()"
        command = [_python(), *FLAGS, "-c", code, *arguments]
        if is_confined:
            command = [*_confinement(limits, folder), *options.arguments, "--", *command]
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[end.fileno(), *options.numbers],
            cwd=folder,
            env={"PATH": os.defpath, "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                if not is_confined or process.poll() is None:  # bwrap kills its children
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def harness() -> Iterator[str]:
    """A folder to import `confined` from, with nothing else of this project, whose packages import
    more than the standard library."""
    with tempfile.TemporaryDirectory() as root:
        package = Path(root, *PACKAGE.split("."))
        package.parent.mkdir(parents=True)
        package.symlink_to(HARNESS)
        yield root
