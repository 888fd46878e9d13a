"""Processes confined by bubblewrap: own namespaces, a read-only system, limits on all they use."""

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
from typing import IO

import remask
from remask.evaluation.sandbox.syscalls import make_filter

HOW_TO_INSTALL = (
    "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`) on a machine that "
    "lets users make namespaces, or pass unsafe=True to run generated code without protection"
)


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
    """Of any user but root, whose threads the kernel does not limit. Further processes are refused
    altogether where the kernel can be told so."""
    file_mb: int = 16
    """Of one file, and of all files in its folder together."""
    files: int = 1024
    """Files, folders and links in its folder, which take the kernel's memory however small."""
    open_files: int = 64
    output_kb: int = 256
    """Of its standard output and its standard error, each."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value}")


@functools.lru_cache(maxsize=1)
def is_available() -> str | None:
    """None where programs can be confined; else why not and what to do."""
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
    said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"bubblewrap does not work here ({said[0]}); {HOW_TO_INSTALL}"


FLAGS = ("-s", "-S", "-P", "-B", "-u", "-X", "utf8")  # unbuffered: output is not lost at the end
"""No site packages, nothing from the current folder, no bytecode written."""
HARNESS = Path(__file__).parent / "confined"
PACKAGE = "remask.evaluation.sandbox.confined"


def _python() -> str:
    return os.path.realpath(sys.executable)


def _confinement(limits: Limits, folder: str) -> list[str]:
    """The bwrap command: own namespaces, a read-only system, one small folder to write in.

    No /proc, for nothing needs it. The root and /dev are memory too, so they are closed.

    Args:
        limits: What the program may use.
        folder: An empty folder, covered by the one to write in where the program sees it.
    """
    command = _small_folder(limits, folder)
    command += ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    command += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0"]  # sets in the same order each time
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
    """A command that runs another where `folder` is memory of limited size and number of inodes.

    bwrap's own `--tmpfs` takes a size alone, and a million empty folders are 2 GB of the kernel's
    memory. So one more bwrap makes a namespace in which this user may mount, and nothing else.
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
    """How to hand bwrap the filter: as an open file."""
    program = make_filter()
    if program is None:
        yield _Options()
        return
    with _readable(program) as file:
        yield _Options(["--seccomp", str(file.fileno())], [file.fileno()])


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[IO[bytes]]:
    """Bytes as an open file that can only be read and has no name."""
    with tempfile.NamedTemporaryFile() as written:
        written.write(data)
        written.flush()
        with open(written.name, "rb") as file:
            yield file


@contextlib.contextmanager
def start(
    role: str, text: bytes, end: socket.socket, limits: Limits, *, is_confined: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """One of the two processes, `judge` or `candidate`; ended, with all it started, on leaving."""
    root = "/harness" if is_confined else str(Path(str(remask.__file__)).parents[1])
    code = f"import sys; sys.path.append({root!r}); import {PACKAGE}.{role} as role; role.main()"
    arguments = [str(end.fileno()), json.dumps(asdict(limits) | {"is_alone": is_confined})]
    command = [_python(), *FLAGS, "-c", code, *arguments]
    with (
        _readable(text) as stdin,
        _system_call_filter() as options,
        tempfile.TemporaryDirectory() as folder,
    ):
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
                if not is_confined or process.poll() is None:  # bwrap takes all others with it
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
