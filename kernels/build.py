"""Compile the kernels on first use, into a cache of our own; say why when that cannot be.

The kernels are plain C functions without torch headers, so a compiler is all they need and a build
takes seconds. A library is written aside and renamed, so several processes may build at once and a
killed one leaves nothing behind. Nothing here runs at import.

    python -m kernels.build          # build now, and say what this machine gets
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

CSRC = Path(__file__).parent / "csrc"
SOURCES = {"cpu": "history_cpu.cpp", "cuda": "history_cuda.cu"}
HEADERS = ("history.h", "host_shim.h")

CACHE_VARIABLE = "REMASK_CACHE"
"""Folder for built libraries; by default `remask` in the user's cache folder."""
MODE_VARIABLE = "REMASK_KERNELS"
"""`auto` (default) compiles when it can; `reference` never does."""


@dataclass(frozen=True)
class Native:
    """A compiled library, or the reason there is none."""

    library: ctypes.CDLL | None
    detail: str
    """Where the library is, or why there is none and what to do."""


def is_compiled(device: str | torch.device = "cpu") -> bool:
    """Does the compiled kernel run for tensors on this device? Builds it if need be."""
    return native(torch.device(device).type).library is not None


@functools.cache
def native(device_type: str) -> Native:
    """The library for a device type, built if need be: once per process."""
    mode = os.environ.get(MODE_VARIABLE, "auto")
    if mode not in ("auto", "reference"):
        raise ValueError(f"{MODE_VARIABLE} must be auto or reference, got {mode!r}")
    if mode == "reference":
        return Native(None, f"{MODE_VARIABLE}=reference asks for the reference path")
    if device_type not in SOURCES:
        return Native(None, f"there is no kernel for {device_type} devices")
    if device_type == "cuda" and not torch.cuda.is_available():
        return Native(None, "torch sees no CUDA device")
    try:
        path = build(_cpu_command() if device_type == "cpu" else _cuda_command())
        return Native(ctypes.CDLL(str(path)), str(path))
    except (OSError, RuntimeError) as error:
        return Native(None, str(error))


def warn_if_reference(device_type: str) -> None:
    """Tell the user once that the slow path runs, and why."""
    if native(device_type).library is None and os.environ.get(MODE_VARIABLE) != "reference":
        _warn_once(native(device_type).detail)


@functools.cache
def _warn_once(detail: str) -> None:
    warnings.warn(
        f"history operators run on the slower reference path: {detail}",
        RuntimeWarning,
        stacklevel=4,
    )


@dataclass(frozen=True)
class Command:
    """One compiler call: everything but the output path."""

    compiler: str
    flags: tuple[str, ...]
    source: str

    def run(self, output: Path) -> None:
        """Compile to `output`, or raise RuntimeError with what the compiler said."""
        argv = [self.compiler, *self.flags, "-o", str(output), str(CSRC / self.source)]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"{self.compiler} could not compile {self.source}: {_first_error(done.stderr)}; "
                f"mend the compiler, or set {MODE_VARIABLE}=reference to do without"
            )

    def key(self) -> str:
        """What the result depends on, as a short hash."""
        version = subprocess.run(
            [self.compiler, "--version"], capture_output=True, text=True
        ).stdout
        parts = [platform.machine(), version, *self.flags, self.source]
        parts += [(CSRC / name).read_text() for name in (self.source, *HEADERS)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def build(command: Command) -> Path:
    """The library of a command: from the cache, or compiled into it, whole or not at all."""
    folder = cache_folder()
    output = folder / f"{Path(command.source).stem}-{command.key()}.so"
    if output.exists():
        return output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as aside:
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
    """Where built libraries live."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen) / "kernels"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "remask" / "kernels"


def shim_command() -> Command:
    """The CUDA kernels compiled for the host, where a loop plays the GPU; for tests."""
    flags = ("-O1", "-std=c++17", "-shared", "-fPIC", "-x", "c++", "-DREMASK_HOST_SHIM")
    return Command(_host_compiler(), flags, SOURCES["cuda"])


def _cpu_command() -> Command:
    compiler = _host_compiler()
    flags = ["-O3", "-std=c++17", "-shared", "-fPIC"]
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        flags += ["-mavx2", "-mfma"]
    if _accepts(compiler, "-fopenmp"):
        flags += ["-fopenmp"]
    return Command(compiler, tuple(flags), SOURCES["cpu"])


def _cuda_command() -> Command:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise RuntimeError("there is a GPU but no nvcc; put the CUDA toolkit's bin folder on PATH")
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


def main() -> None:
    for device_type in SOURCES:
        found = native(device_type)
        print(f"{device_type}: {'compiled' if found.library else 'reference'} ({found.detail})")


if __name__ == "__main__":
    main()
