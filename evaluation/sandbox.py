"""Runs a generated program against tests, confined by bubblewrap, and says how it ended.

The program and the judge, who runs the tests, are two processes in two sandboxes, joined by one
socket. The program is asked for values and sends values; it never sees the tests, what they expect,
or the pipe for the verdict. A verdict counts as passed only with the token of this run, which the
judge alone was given. So none of these help a program: ending early with status 0, `os._exit`,
reading its own source, arguments, environment or memory, patching builtins or test helpers, or
objects that claim to equal everything.

What remains possible:
- To pass, a program may do what tests cannot tell from a right answer, such as a table of answers.
- It can read the system's `/usr` and this Python's own files, and learn the time and the kernel.
- A hole in the kernel or in bubblewrap is a hole here. A program of a user that is root outside is
  that same user inside, without any of root's rights.
- Within its limits it may waste time and memory.
- Tests see copies: that a program changed a list it was given is not noticed.
"""

import contextlib
import functools
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from evaluation.syscalls import make_filter

Status = Literal["passed", "failed", "error", "died", "timeout", "memory", "output"]

HOW_TO_INSTALL = (
    "install bubblewrap (`apt-get install bubblewrap`, `dnf install bubblewrap`) on a machine that "
    "lets users make namespaces, or pass unsafe=True to run generated code without protection"
)
TAIL = 2000
"""Characters of a program's output that are kept, the last ones."""
GRACE_S = 0.5
"""For a program that hung up to end by itself, so that its exit status tells why."""


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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a program ended."""

    status: Status
    """Wrong answers are `failed`, exceptions `error`, an end before the verdict `died`."""
    detail: str = ""
    """The test that failed, and why."""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0


def run_python(
    source: str,
    tests: Sequence[str],
    *,
    names: Sequence[str],
    setup: str = "",
    limits: Limits | None = None,
    unsafe: bool = False,
) -> Outcome:
    """Run a program, then tests that use what it defines.

    Args:
        source: The program. Nobody need have read it.
        tests: Statements that raise where the program is wrong; trusted, and at least one.
        names: What the tests use of the program. All their other names are the judge's own.
        setup: Statements before the tests, such as imports; trusted.
        limits: What the program may use.
        unsafe: Run without a sandbox where there is none. Limits hold; nothing else does.

    Raises:
        RuntimeError: There is no sandbox here, or it would not start.
    """
    if not tests:
        raise ValueError("a program needs at least one test; without tests nothing is proven")
    reason = is_available()
    if reason is not None and not unsafe:
        raise RuntimeError(f"generated code is not run without a sandbox: {reason}")
    limits, token, start = limits or Limits(), secrets.token_hex(16), time.monotonic()
    task = {"tests": list(tests), "names": list(names), "setup": setup, "token": token}
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(end) for end in socket.socketpair()]
        texts = {"judge": json.dumps(task).encode(), "candidate": source.encode(errors="replace")}
        workers = {
            role: stack.enter_context(_start(role, text, end, limits, is_confined=reason is None))
            for (role, text), end in zip(texts.items(), ends, strict=True)
        }
        for end in ends:
            end.close()  # else neither side would hear the other hang up
        watch = _Watch(workers, limits, start + limits.wall_s)
        stopped = watch.until_verdict()
        exit_status = _exit_status(workers["candidate"])
    seconds = time.monotonic() - start
    status, detail = _conclude(watch.texts, stopped, exit_status, token, limits, seconds)
    return Outcome(
        status=status,
        detail=detail,
        stdout=_tail(watch.texts["candidate", "stdout"]),
        stderr=_tail(watch.texts["candidate", "stderr"]),
        seconds=seconds,
    )


@functools.lru_cache(maxsize=1)
def is_available() -> str | None:
    """None where programs can be confined; else why not and what to do."""
    if shutil.which("bwrap") is None:
        return f"bubblewrap is missing; {HOW_TO_INSTALL}"
    with _system_call_filter() as options:
        done = subprocess.run(
            [*_confinement(Limits()), *options.arguments, "--", _python(), *FLAGS, "-c", ""],
            pass_fds=options.numbers,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    if done.returncode == 0:
        return None
    said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return f"bubblewrap does not work here ({said[-1]}); {HOW_TO_INSTALL}"


FLAGS = ("-s", "-S", "-P", "-B", "-u", "-X", "utf8")  # unbuffered: output is not lost at the end
"""No site packages, nothing from the current folder, no bytecode written."""
HARNESS = Path(__file__).parent / "confined"


def _python() -> str:
    return os.path.realpath(sys.executable)


def _confinement(limits: Limits) -> list[str]:
    """The bwrap command: own namespaces, a read-only system, one small folder to write in.

    No /proc, for nothing needs it. The root and /dev are memory too, so they are closed.
    """
    command = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns"]
    command += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox"]
    command += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0"]  # sets in the same order each time
    command += ["--ro-bind", "/usr", "/usr"]
    for folder in ("/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(folder):
            command += ["--symlink", os.readlink(folder), folder]
        else:
            command += ["--ro-bind-try", folder, folder]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    prefix = os.path.realpath(sys.base_prefix)
    if not Path(prefix).is_relative_to("/usr"):
        command += ["--ro-bind", prefix, prefix]
    command += ["--ro-bind", str(HARNESS), "/harness/evaluation/confined"]
    command += ["--dev", "/dev", "--remount-ro", "/dev"]
    command += ["--size", str(limits.file_mb << 20), "--tmpfs", "/work", "--chdir", "/work"]
    return [*command, "--remount-ro", "/"]


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
def _start(
    role: str, text: bytes, end: socket.socket, limits: Limits, *, is_confined: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """One of the two processes, `judge` or `candidate`; ended, with all it started, on leaving."""
    root = "/harness" if is_confined else str(HARNESS.parents[1])
    code = f"import sys; sys.path.append({root!r}); import evaluation.confined.{role} as role"
    code += "; role.main()"
    arguments = [str(end.fileno()), json.dumps(asdict(limits) | {"is_alone": is_confined})]
    command = [_python(), *FLAGS, "-c", code, *arguments]
    with (
        _readable(text) as stdin,
        _system_call_filter() as options,
        tempfile.TemporaryDirectory() as folder,
    ):
        if is_confined:
            command = [*_confinement(limits), *options.arguments, "--", *command]
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


class _Watch:
    """Reads what both processes write, until there is a verdict or a limit is passed."""

    def __init__(
        self, workers: dict[str, subprocess.Popen[bytes]], limits: Limits, deadline: float
    ) -> None:
        self.texts = {(role, name): b"" for role in workers for name in ("stdout", "stderr")}
        self._most = limits.output_kb << 10
        self._deadline = deadline
        self._selector = selectors.DefaultSelector()
        for role, name in self.texts:
            self._selector.register(
                getattr(workers[role], name), selectors.EVENT_READ, (role, name)
            )

    def until_verdict(self) -> Literal["timeout", "output"] | None:
        """None when the judge closed its end; else which limit was passed."""
        with self._selector:
            while (left := self._deadline - time.monotonic()) > 0:
                for key, _ in self._selector.select(left):
                    if not self._read(key) and key.data == ("judge", "stdout"):
                        self._read_rest()
                        return None
                if any(len(text) > self._most for text in self.texts.values()):
                    return "output"
        return "timeout"

    def _read(self, key: Any) -> bool:
        data = os.read(key.fd, 1 << 16)
        self.texts[key.data] += data
        if not data:
            self._selector.unregister(key.fileobj)
        return bool(data)

    def _read_rest(self) -> None:
        """What is already there."""
        while ready := self._selector.select(0):
            for key, _ in ready:
                self._read(key)
            if any(len(text) > self._most for text in self.texts.values()):
                return


def _exit_status(process: subprocess.Popen[bytes]) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(GRACE_S)
    return None


def _conclude(
    texts: dict[tuple[str, str], bytes],
    stopped: Literal["timeout", "output"] | None,
    exit_status: int | None,
    token: str,
    limits: Limits,
    seconds: float,
) -> tuple[Status, str]:
    """Status and detail, from all that was seen."""
    if stopped is not None:
        return stopped, f"stopped by {'wall_s' if stopped == 'timeout' else 'output_kb'}"
    lines = texts["judge", "stdout"].decode(errors="replace").splitlines()
    try:
        verdict: dict[str, Any] = json.loads(lines[-1]) if lines else {"status": "absent"}
    except ValueError:
        return "died", "the judge was stopped while it wrote its verdict"
    if verdict.get("status") == "absent":
        said = texts["judge" if not lines else "candidate", "stderr"]
        raise RuntimeError(f"the sandbox did not start: {_tail(said).strip()}")
    status: Status = verdict.get("status") or "died"
    detail = str(verdict.get("detail", "the judge gave up"))
    if status == "passed" and not secrets.compare_digest(str(verdict.get("token")), token):
        return "died", "a verdict without its token"
    if status == "died" and _is_out_of_time(exit_status, limits, seconds):
        return "timeout", "stopped by cpu_s"
    return status, detail


def _is_out_of_time(exit_status: int | None, limits: Limits, seconds: float) -> bool:
    """Killed by the limit of the processor's time, by either of its two signals."""
    ended_by = {
        s: (-s, 128 + s) for s in (signal.SIGXCPU, signal.SIGKILL)
    }  # bare, or through bwrap
    if exit_status in ended_by[signal.SIGXCPU]:
        return True
    return exit_status in ended_by[signal.SIGKILL] and seconds >= limits.cpu_s


def _tail(text: bytes) -> str:
    return text.decode(errors="replace")[-TAIL:]
