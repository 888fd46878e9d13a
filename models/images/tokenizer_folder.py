"""Image tokenisers as folders: config.json and safetensors, ours or published by diffusers.

    config.json          format, kind, the tokeniser's config
    model.safetensors    one tensor per parameter
    SHA256SUMS           checksums of the files above, in folders that we wrote

Nothing is unpickled and no code from a folder is run. A folder is written atomically.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from remask.models.checkpoints.folder import (
    CONFIG,
    SUMS,
    CheckpointError,
    atomic_folder,
    check_sums,
    reads_folder,
)
from remask.models.checkpoints.sizes import on_meta
from remask.models.checkpoints.weights import WEIGHTS, read_weights
from remask.models.config import from_mapping
from remask.models.images.published_vq import CLASS, load_published
from remask.models.images.published_vq import WEIGHTS as PUBLISHED_WEIGHTS
from remask.models.images.tokenizer import ImageTokenizer
from remask.models.images.vq import PatchVQ, PatchVQConfig

FORMAT = 1
INNER = ("vqvae", "tokenizer")
"""Subfolders that hold the tokeniser, of Lumina-DiMOO's folder and of a run of `training/vq.py`."""


def save_tokenizer(tokenizer: PatchVQ, path: str | os.PathLike[str]) -> None:
    """Write a folder; an existing tokeniser is replaced, any other folder refused."""
    with atomic_folder(path, (CONFIG, WEIGHTS)) as partial:
        settings = {
            "format": FORMAT,
            "kind": tokenizer.kind,
            "config": dataclasses.asdict(tokenizer.config),
        }
        (partial / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
        tensors = {name: x.detach().contiguous() for name, x in tokenizer.state_dict().items()}
        save_file(tensors, partial / WEIGHTS)


@reads_folder
def load_tokenizer(
    path: str | os.PathLike[str], *, device: str | torch.device | None = None
) -> ImageTokenizer:
    """Read an image tokeniser's folder, ready to encode and decode.

    Args:
        path: A folder of ours or of diffusers, or one with such a folder as `tokenizer` or `vqvae`.
        device: Device of the weights. Defaults to the CPU.
    """
    folder, device = _folder(path), torch.device(device or "cpu")
    settings = _read_settings(folder)
    if settings.get("_class_name") == CLASS:
        return load_published(folder).to(device).eval().requires_grad_(False)
    if not settings.keys() >= {"format", "kind", "config"}:
        raise CheckpointError(
            f"{folder / CONFIG} is not an image tokeniser's, which has format, kind and config"
        )
    if settings["format"] != FORMAT or settings["kind"] != PatchVQ.kind:
        raise CheckpointError(
            f"{folder} holds a {settings['kind']!r} tokeniser of format {settings['format']!r}; "
            f"this reader takes {PatchVQ.kind!r} of format {FORMAT}"
        )
    try:
        config = from_mapping(PatchVQConfig, settings["config"], "config")
        with on_meta():
            tokenizer = PatchVQ(config)
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    read_weights(tokenizer, folder, lambda name: name, device, None)
    check_sums(folder, [folder / CONFIG, folder / WEIGHTS])
    return tokenizer.eval().requires_grad_(False)


@reads_folder
def tokenizer_fingerprint(path: str | os.PathLike[str]) -> str:
    """A short hash of the bytes of a tokeniser's config and weights."""
    folder = _folder(path)
    _read_settings(folder)
    total = hashlib.sha256()
    for file in (folder / CONFIG, *sorted(folder.glob("*.safetensors"))):
        with file.open("rb") as opened:
            total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()[:16]


@reads_folder
def tokenizer_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files that a copy of a tokeniser needs."""
    folder = _folder(path)
    _read_settings(folder)
    names = (CONFIG, WEIGHTS, PUBLISHED_WEIGHTS, SUMS)
    return [folder / name for name in names if (folder / name).is_file()]


def _folder(path: str | os.PathLike[str]) -> Path:
    inner = [Path(path) / name for name in INNER]
    return next((x for x in inner if (x / CONFIG).is_file()), Path(path))


def _read_settings(folder: Path) -> dict[str, Any]:
    if not (folder / CONFIG).is_file():
        raise CheckpointError(f"there is no image tokeniser at {folder}: it lacks {CONFIG}")
    try:
        settings = json.loads((folder / CONFIG).read_text())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG} is not JSON: {error}") from error
    return settings if isinstance(settings, dict) else {}
