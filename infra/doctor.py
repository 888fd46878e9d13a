"""What this machine can run, and why not: versions, extras, disk space, kernels, GPUs, sandbox.

remask doctor
remask doctor --json          # for programs
"""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import torch
from rich.table import Table
from rich.text import Text

from remask.infra.cli import version
from remask.kernels.build import native
from remask.pipeline.runtime.terminal import make_console, visible
from remask.pipeline.sandbox.run import find_escapes, is_available

VERSIONS = ("torch", "ray", "deepspeed", "transformers", "polars", "pyarrow", "datasets", "peft")
"""Packages whose versions are worth telling with a question."""
LOW_DISK = 5e9
"""Bytes of free space below which the doctor warns."""


@dataclass(frozen=True)
class Extra:
    """Packages that only some commands need."""

    name: str
    packages: tuple[str, ...]
    purpose: str
    is_ours: bool = True
    """Whether `remask[name]` installs them."""


EXTRAS = (
    Extra("image", ("diffusers", "scikit-image"), "published image tokenisers, PSNR and SSIM"),
    Extra("text", ("math-verify",), "answers of MATH and GSM8K"),
    Extra("harness", ("lm_eval",), "`remask harness`"),
    Extra("docs", ("mkdocs-material",), "`bash infra/docs/build.sh`"),
    Extra("S3", ("s3fs",), "data and outputs at s3:// addresses", is_ours=False),
    Extra("wandb", ("wandb",), "training curves on Weights & Biases, `log.wandb`", is_ours=False),
)


@dataclass(frozen=True)
class Disk:
    """A disk that fills up."""

    path: str
    holds: str
    """What commands put there."""
    free_bytes: int
    bytes: int


@dataclass(frozen=True)
class Finding:
    """Something that commands depend on."""

    ok: bool
    item: str
    status: str


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask doctor", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    if arguments.json:
        print(json.dumps(report(), indent=2))
        return
    table = Table("", "item", "status", box=None, pad_edge=False)
    for finding in findings():
        mark = Text("✓", "green") if finding.ok else Text("–", "yellow")
        table.add_row(mark, visible(finding.item), visible(finding.status))
    make_console().print(table)


def report() -> dict[str, object]:
    """Everything that the doctor knows, as plain values."""
    return {
        "remask": version(),
        "python": platform.python_version(),
        "versions": {name: installed(name) for name in VERSIONS},
        "extras": {
            extra.name: {
                "purpose": extra.purpose,
                "packages": {name: installed(name) for name in extra.packages},
            }
            for extra in EXTRAS
        },
        "disks": [asdict(disk) for disk in disks()],
        "findings": [asdict(finding) for finding in findings()],
    }


def findings() -> Iterator[Finding]:
    """Everything that commands depend on, whether it is there, and details."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(
        True,
        "remask",
        f"{version()} on Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}",
    )
    yield Finding(
        True, "torch", f"{torch.__version__}, {torch.get_num_threads()} threads on {cores} cores"
    )
    versions = {name: installed(name) for name in VERSIONS[1:]}
    yield Finding(
        None not in versions.values(),
        "versions",
        ", ".join(f"{name} {number or 'missing'}" for name, number in versions.items()),
    )
    ratio = bf16_ratio()
    pays = "engine.precision=mixed pays" if ratio > 1.2 else "train with engine.precision=fp32"
    yield Finding(
        ratio > 1.2, "bf16", f"matrix products at {ratio:.1f} times the speed of fp32: {pays}"
    )
    cpu = native("cpu")
    yield Finding(cpu.library is not None, "CPU kernels", _kernel(cpu.library, cpu.detail))
    if torch.cuda.is_available():
        names = (torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Finding(True, "GPU", ", ".join(names))
        cuda = native("cuda")
        yield Finding(cuda.library is not None, "CUDA kernels", _kernel(cuda.library, cuda.detail))
    else:
        toolkit = shutil.which("nvcc") or "none"
        yield Finding(
            False, "GPU", f"torch sees none, so everything runs on the CPU (nvcc: {toolkit})"
        )
    yield sandbox()
    yield from map(find_extra, EXTRAS)
    for disk in disks():
        free = f"{disk.free_bytes / 1e9:.1f} of {disk.bytes / 1e9:.0f} GB free"
        yield Finding(disk.free_bytes > LOW_DISK, "disk", f"{free} for {disk.holds}: {disk.path}")


def find_extra(extra: Extra) -> Finding:
    """Whether the packages of an extra are installed, and what they are for."""
    missing = [name for name in extra.packages if installed(name) is None]
    if not missing:
        present = ", ".join(f"{name} {installed(name)}" for name in extra.packages)
        return Finding(True, extra.name, f"{present}: {extra.purpose}")
    what = f"remask[{extra.name}]" if extra.is_ours else extra.packages[0]
    need = f"{', '.join(missing)} missing, for {extra.purpose}: `pip install '{what}'`"
    return Finding(False, extra.name, need)


def installed(name: str) -> str | None:
    """The version of an installed package; None if it is missing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def disks() -> list[Disk]:
    """The disks that commands write to, each once."""
    home = Path.home() / ".cache"
    folders = (
        (Path.cwd(), "outputs"),
        (Path(os.environ.get("REMASK_CACHE", home / "remask")), "compiled kernels"),
        (Path(os.environ.get("HF_HOME", home / "huggingface")), "downloads from the hub"),
        (Path(tempfile.gettempdir()), "Ray's sessions"),
    )
    by_device: dict[int, tuple[Path, list[str]]] = {}
    for folder, holds in folders:
        place = next(x for x in (folder, *folder.absolute().parents) if x.is_dir())
        by_device.setdefault(place.stat().st_dev, (place, []))[1].append(holds)
    return [
        Disk(str(path), ", ".join(holds), usage.free, usage.total)
        for path, holds in by_device.values()
        if (usage := shutil.disk_usage(path))
    ]


def sandbox() -> Finding:
    """Whether generated programs can be confined, and whether the confinement holds."""
    reason = is_available()
    if reason is not None:
        none = f"none, so MBPP and HumanEval will not run: {reason}"
        return Finding(False, "sandbox", none)
    escape = find_escapes()
    if escape is not None:
        bad = f"does not hold: a program got out ({escape}); do not rely on it"
        return Finding(False, "sandbox", bad)
    return Finding(True, "sandbox", "holds: programs reach no file outside it and no network")


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


def _kernel(library: object, detail: str) -> str:
    return f"reference path, slower: {detail}" if library is None else f"compiled: {detail}"


if __name__ == "__main__":
    main()
