"""Compile the kernels on first use into our own cache, or say why that is not possible.

The kernels are plain C functions without torch headers, so a compiler is all they need and a build
takes seconds. A library is built in a temporary folder and renamed into place: several processes
may build at once, and a killed one leaves no partial library. Nothing here runs at import.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

CSRC = Path(__file__).parent / "csrc"
SOURCES = {"cpu": "history_cpu.cpp", "cuda": "history_cuda.cu", "rows": "rows_cpu.cpp"}
"""Source of each library: the history operators by type of device, and the row operations."""
HEADERS = ("history.h", "host_shim.h")
ASIDE = "building-"

CACHE_VARIABLE = "REMASK_CACHE"
"""Names the folder for built libraries; defaults to `remask` in the user's cache folder."""
MODE_VARIABLE = "REMASK_KERNELS"
"""`auto` (default) compiles when it can; `reference` never does."""


@dataclass(frozen=True)
class Native:
    """A compiled library, or the reason there is none."""

    library: ctypes.CDLL | None
    detail: str
    """Where the library is, or why there is none and what to do."""


@dataclass(frozen=True)
class Command:
    """A compiler call without its output path."""

    compiler: str
    flags: tuple[str, ...]
    source: str

    def run(self, output: Path) -> None:
        """Compile to `output`. Raise RuntimeError with the compiler's first error."""
        argv = [self.compiler, *self.flags, "-o", str(output), str(CSRC / self.source)]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"{self.compiler} could not compile {self.source}: {_first_error(done.stderr)}; "
                f"fix the compiler, or set {MODE_VARIABLE}=reference to do without"
            )

    def key(self) -> str:
        """A short hash of everything that the library depends on."""
        version = subprocess.run(
            [self.compiler, "--version"], capture_output=True, text=True
        ).stdout
        parts = [platform.machine(), version, *self.flags, self.source]
        parts += [(CSRC / name).read_text() for name in (self.source, *HEADERS)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def is_compiled(device: str | torch.device = "cpu") -> bool:
    """Does the compiled kernel run for tensors on this device? Builds it if necessary."""
    return native(torch.device(device).type).library is not None


@functools.cache
def native(name: str) -> Native:
    """Load a library of SOURCES, once per process; builds it if necessary."""
    mode = os.environ.get(MODE_VARIABLE, "auto")
    if mode not in ("auto", "reference"):
        return Native(None, f"{MODE_VARIABLE} must be auto or reference, got {mode!r}")
    if mode == "reference":
        return Native(None, f"{MODE_VARIABLE}=reference asks for the reference path")
    if name not in SOURCES:
        return Native(None, f"no kernel exists for {name} devices")
    if name == "cuda" and not torch.cuda.is_available():
        return Native(None, "torch sees no CUDA device")
    try:
        return load(_cuda_command() if name == "cuda" else _cpu_command(SOURCES[name]))
    except (OSError, RuntimeError) as error:
        return Native(None, str(error))


def load(command: Command) -> Native:
    """Load a command's library. Builds it if it is missing or damaged."""
    path = build(command)
    try:
        return Native(ctypes.CDLL(str(path)), str(path))
    except OSError:
        path.unlink(missing_ok=True)
        return Native(ctypes.CDLL(str(build(command))), str(path))


def warn_if_reference(device_type: str) -> None:
    """Warn the user, once, that the slow path runs and why."""
    if native(device_type).library is None and os.environ.get(MODE_VARIABLE) != "reference":
        _warn_once(native(device_type).detail)


@functools.cache
def _warn_once(detail: str) -> None:
    warnings.warn(
        f"history operators run on the slower reference path: {detail}",
        RuntimeWarning,
        stacklevel=4,
    )


def build(command: Command) -> Path:
    """Path of a command's library in the cache, compiled there if it is missing."""
    folder = cache_folder()
    output = folder / f"{Path(command.source).stem}-{command.key()}.so"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_private(folder)
        if output.exists():
            return output
        _sweep(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=ASIDE) as aside:
            partial = Path(aside) / output.name
            command.run(partial)
            os.replace(partial, output)
    except OSError as error:
        raise RuntimeError(
            f"cannot write to {folder} ({error.strerror}); set {CACHE_VARIABLE} to a folder that "
            "can be written"
        ) from error
    return output


def cache_folder() -> Path:
    """Folder of the built libraries."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen) / "kernels"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "remask" / "kernels"


def _check_private(folder: Path) -> None:
    """Raise RuntimeError if others can write here: what is loaded runs as the current user."""
    if not hasattr(os, "getuid"):
        return
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(
            f"others can write to {folder}, so no kernel is loaded from it; set {CACHE_VARIABLE} "
            "to a folder of your own"
        )


def _sweep(folder: Path) -> None:
    """Remove the leftovers of builds that were killed more than an hour ago."""
    for stray in folder.glob(f"{ASIDE}*"):
        if time.time() - stray.stat().st_mtime > 3600:
            shutil.rmtree(stray, ignore_errors=True)


def shim_command() -> Command:
    """Compile the CUDA kernels for the host, where a loop stands in for the GPU; for tests."""
    flags = ("-O1", "-std=c++17", "-shared", "-fPIC", "-x", "c++", "-DREMASK_HOST_SHIM")
    return Command(_host_compiler(), flags, SOURCES["cuda"])


def _cpu_command(source: str = SOURCES["cpu"]) -> Command:
    compiler = _host_compiler()
    flags = ["-O3", "-std=c++17", "-shared", "-fPIC"]
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        flags += ["-mavx2", "-mfma"]
    if _accepts(compiler, "-fopenmp"):
        flags += ["-fopenmp"]
    return Command(compiler, tuple(flags), source)


def _cuda_command() -> Command:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise RuntimeError("nvcc was not found; put the CUDA toolkit's bin folder on PATH")
    major, minor = torch.cuda.get_device_capability()
    flags = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", f"-arch=sm_{major}{minor}")
    return Command(nvcc, flags, SOURCES["cuda"])


def _host_compiler() -> str:
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else ("c++", "g++", "clang++"):
        if path := shutil.which(name):
            return path
    looked = f"CXX={chosen}" if chosen else "c++, g++ or clang++"
    raise RuntimeError(f"no C++ compiler found ({looked}); install one, for example g++")


def _accepts(compiler: str, flag: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        argv = [compiler, flag, "-shared", "-x", "c++", os.devnull, "-o", f"{folder}/probe.so"]
        return subprocess.run(argv, capture_output=True).returncode == 0


def _first_error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if "error" in line.lower()] or [stderr.strip()]
    return lines[0][:300]
