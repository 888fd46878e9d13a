"""The kernels of another git revision, imported beside these, so that both can run in turns.

Two versions cannot share a package name or torch's operator namespace. The Python files of the
other revision are therefore copied with both names replaced; its C++ files are copied as they are.
"""

import importlib
import inspect
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from torch import Tensor

from remask import kernels
from remask.kernels.build import CACHE_VARIABLE
from remask.kernels.native import Tensors

PACKAGE = "other_kernels"
"""Name of the copy, as a package and as an operator namespace."""


def load_revision(revision: str, folder: Path) -> ModuleType:
    """Copy, build and import the kernels of a revision.

    Args:
        revision: A commit, branch or tag of the repository that this clone is of.
        folder: Empty folder for the copy and its compiled library. It must outlive the module.
    """
    archive = subprocess.run(
        [
            "git",
            "-C",
            str(Path(str(kernels.__file__)).parent),
            "archive",
            "--format=tar",
            revision,
            ".",
        ],
        capture_output=True,
    )
    if archive.returncode != 0:
        reason = archive.stderr.decode().strip().splitlines()[0]
        raise ValueError(f"git has no kernels at revision {revision!r} ({reason}); name a commit")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder / PACKAGE, filter="data")
    for path in (folder / PACKAGE).glob("*.py"):
        text = re.sub(r"\b(remask\.)?kernels\b", PACKAGE, path.read_text())
        path.write_text(re.sub(r"\bremask\b", PACKAGE, text))
    sys.path.insert(0, str(folder))
    os.environ[CACHE_VARIABLE], kept = str(folder / "cache"), os.environ.get(CACHE_VARIABLE)
    try:
        package = importlib.import_module(PACKAGE)
        built = importlib.import_module(f"{PACKAGE}.build").native("cpu")
    finally:
        sys.path.remove(str(folder))
        del os.environ[CACHE_VARIABLE]
        if kept is not None:
            os.environ[CACHE_VARIABLE] = kept
    if built.library is None:
        raise RuntimeError(f"the kernels of revision {revision} were not compiled: {built.detail}")
    return package


def embed_call(
    package: ModuleType, weight: Tensor, segments: Tensors, *, horizon: int, decay: float
) -> Callable[[], Tensor]:
    """A call of a package's `history_embed` on segments whose second token is MASK.

    Before `Segments`, the operator took wrong tokens, the target and two boundaries.
    """
    tokens, ends, step = segments
    embed = package.history_embed
    if "mask_id" not in inspect.signature(embed).parameters:
        return lambda: embed(weight, tokens, ends, step, horizon=horizon, decay=decay)
    (wrong, mask, target), (masked_at, revealed_at) = tokens, ends
    mask_id = int(mask[0, 0])
    rows = target, wrong, masked_at, revealed_at, step
    return lambda: embed(weight, *rows, mask_id=mask_id, horizon=horizon, decay=decay)
