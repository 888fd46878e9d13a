"""Sound files to begin from, as the project's own writers leave them; made once in a process."""

import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import yaml

from remask.models import SudokuConfig, SudokuMDM, save
from remask.models.checkpoints.folder import SUMS
from remask.pipeline import build
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.runtime.storage import SEAL
from tests.fuzz.case import Files

MODEL = {"kind": "sudoku", "side": 4, "layers": 1, "width": 16, "heads": 2, "feed_forward": 16}
CHECKPOINT, DATA = "checkpoint-of-fuzz", "data-of-fuzz"
"""Names that stand in no message by chance."""
BUILD = {
    "output": DATA,
    "source": {"kind": "sudoku", "side": 4, "train": 10, "held_out": 4},
    "trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.9]},
    "examples_per_shard": 5,
    "run": {"workers": 0},
}
TOP_K = {**BUILD, "proposal": {"kind": "top_k", "backbone": CHECKPOINT, "k": 3}}


def read_files(folder: Path, prefix: str = "") -> Files:
    """All files of a folder, by their paths in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {f"{prefix}{path.relative_to(folder)}": path.read_bytes() for path in paths}


def made(write: Callable[[Path], object], prefix: str = "") -> Files:
    """The files that a function writes into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return read_files(Path(folder), prefix)


def small_model() -> SudokuMDM:
    """A model of 4 × 4 boards with random weights, the same each time."""
    torch.manual_seed(0)
    return SudokuMDM(SudokuConfig(**{k: v for k, v in MODEL.items() if k != "kind"}))


@functools.cache
def checkpoint() -> Files:
    """A checkpoint of ours, in its folder."""
    return made(lambda folder: save(small_model(), folder / CHECKPOINT))


@functools.cache
def built(*, is_probed: bool = False) -> Files:
    """A complete data set with its examples and proposals, and `recipe.yaml` beside it."""
    recipe = TOP_K if is_probed else BUILD
    files = dict(checkpoint()) if is_probed else {}

    def write(folder: Path) -> None:
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        text = yaml.safe_dump(recipe)
        (folder / "recipe.yaml").write_text(text)
        absolute = [f"output={folder / DATA}"]
        if is_probed:
            absolute.append(f"proposal.backbone={folder / CHECKPOINT}")
        build.run(load_recipe(BuildRecipe, folder / "recipe.yaml", absolute))

    return made(write)


def reseal(files: Files, name: str) -> None:
    """Make the checksums of a changed file right again, wherever they stand: what lies behind a
    right checksum may be hostile too."""
    folder, _, own = name.rpartition("/")
    if f"{name}{SEAL}" in files:
        files[f"{name}{SEAL}"] = f"{_sha256(files[name])}  {own}\n".encode()
    if f"{folder}/{SUMS}" in files and own != SUMS:
        inside = [x for x in files if x.rpartition("/")[0] == folder and not x.endswith(SUMS)]
        lines = (f"{_sha256(files[x])}  {x.rpartition('/')[2]}\n" for x in sorted(inside))
        files[f"{folder}/{SUMS}"] = "".join(lines).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
