"""What this machine can run, and why not.

remask doctor
"""

import argparse
import os
import platform
import shutil
import time
from collections.abc import Iterator

import torch
from rich.table import Table
from rich.text import Text

from remask.kernels.build import native
from remask.pipeline.runtime.terminal import make_console, visible
from remask.pipeline.sandbox.run import find_escapes, is_available


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask doctor", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.parse_args(argv)
    table = Table("", "item", "status", box=None, pad_edge=False)
    for good, item, status in findings():
        mark = Text("✓", "green") if good else Text("–", "yellow")
        table.add_row(mark, item, visible(status))
    make_console().print(table)


def findings() -> Iterator[tuple[bool, str, str]]:
    """(is it available, its name, details) of everything that commands depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield True, "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield True, "torch", f"{torch.__version__}, {torch.get_num_threads()} threads on {cores} cores"
    ratio = bf16_ratio()
    pays = "engine.precision=mixed pays" if ratio > 1.2 else "train with engine.precision=fp32"
    yield ratio > 1.2, "bf16", f"matrix products at {ratio:.1f} times the speed of fp32: {pays}"
    cpu = native("cpu")
    yield cpu.library is not None, "CPU kernels", _kernel(cpu.library is not None, cpu.detail)
    if torch.cuda.is_available():
        yield (
            True,
            "GPU",
            ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())),
        )
        cuda = native("cuda")
        yield (
            cuda.library is not None,
            "CUDA kernels",
            _kernel(cuda.library is not None, cuda.detail),
        )
    else:
        toolkit = shutil.which("nvcc") or "none"
        yield False, "GPU", f"torch sees none, so everything runs on the CPU (nvcc: {toolkit})"
    yield sandbox()


def sandbox() -> tuple[bool, str, str]:
    """Whether generated programs can be confined, and whether the confinement holds."""
    reason = is_available()
    if reason is not None:
        return False, "sandbox", f"none, so MBPP and HumanEval will not run: {reason}"
    escape = find_escapes()
    if escape is not None:
        return False, "sandbox", f"does not hold: a program got out ({escape}); do not rely on it"
    return True, "sandbox", "holds: programs reach no file outside it and no network"


def bf16_ratio(size: int = 512, repeats: int = 5) -> float:
    """Speed of the CPU's matrix products in bf16 relative to fp32, by the best of `repeats`."""
    times = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(size, size, dtype=dtype)
        best = float("inf")
        for _ in range(repeats):
            start = time.perf_counter()
            torch.mm(matrix, matrix)
            best = min(best, time.perf_counter() - start)
        times.append(best)
    return times[0] / times[1]


def _kernel(is_compiled: bool, detail: str) -> str:
    return f"compiled: {detail}" if is_compiled else f"reference path, slower: {detail}"


if __name__ == "__main__":
    main()
