"""Checkpoints as folders: safetensors weights and the config that shaped them.

    config.json          format, backbone kind, its config, the history settings
    model.safetensors    one tensor per parameter
    README.md            the model card, for models that a recipe trained
    decoding.json        decoding settings, once `remask tune` has chosen them (`decoding_file.py`)
    inputs.json          how inputs are read, with the tokenizer beside it (`input_files.py`)
    SHA256SUMS           checksums of the files above; `load` checks those it reads

The folders that LLaDA, Lumina-DiMOO, Dream and masked language models are published in are read
too (`config_file.py`). Nothing is unpickled and no code from a checkpoint is run. A folder is
written atomically.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from remask.models.backbones import BACKBONES, Backbone
from remask.models.checkpoints import adapter
from remask.models.checkpoints.config_file import FORMAT, describe
from remask.models.checkpoints.folder import (
    CONFIG,
    DECODING,
    CheckpointError,
    atomic_folder,
    check_replaceable,
    check_sums,
    reads_folder,
)
from remask.models.checkpoints.input_files import NAMES as INPUT_NAMES
from remask.models.checkpoints.input_files import InputFiles, write_input_files
from remask.models.checkpoints.shipped import checkpoint_folder
from remask.models.checkpoints.sizes import build
from remask.models.checkpoints.weights import (
    WEIGHTS,
    check_weights,
    read_weights,
    unique_tensors,
    weight_files,
)
from remask.models.config import from_mapping
from remask.models.history import HistoryConfig
from remask.models.text.tokens import tokenizer_files

CARD = "README.md"
FILES = (CONFIG, WEIGHTS, CARD, DECODING, *INPUT_NAMES)


def create(settings: Mapping[str, Any], history: HistoryConfig | None = None) -> Backbone:
    """Make a backbone with random weights.

    Args:
        settings: Its kind and config, such as {kind: sudoku, side: 9}.
        history: How past states reach it. Defaults to the backbone's own default.
    """
    values = dict(settings)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in BACKBONES:
        raise ValueError(f"model: kind must be one of {sorted(BACKBONES)}, got {kind!r}")
    backbone = BACKBONES[kind]
    config = from_mapping(backbone.config_type, values, "model")
    try:
        return build(lambda: backbone(config, history))
    except ValueError as error:
        raise ValueError(f"model: {error}") from error


def save(
    backbone: Backbone,
    path: str | os.PathLike[str],
    *,
    tensors: Mapping[str, torch.Tensor] | None = None,
    card: str | None = None,
    inputs: InputFiles | None = None,
) -> None:
    """Write a checkpoint folder; an existing checkpoint is replaced, any other folder refused.

    Args:
        backbone: The model.
        path: The folder.
        tensors: Its weights, where the model does not hold them whole. Defaults to the model's own.
        card: A model card in Markdown, written as README.md.
        inputs: Files that say how the model's inputs are read: inputs.json, the tokenizer's files.
    """
    with atomic_folder(path, FILES) as partial:
        settings = {
            "format": FORMAT,
            "kind": backbone.kind,
            "config": dataclasses.asdict(backbone.config),
            "history": dataclasses.asdict(backbone.history),
        }
        (partial / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
        weights = unique_tensors(backbone) if tensors is None else tensors
        save_file({k: x.detach().contiguous() for k, x in weights.items()}, partial / WEIGHTS)
        if card is not None:
            (partial / CARD).write_text(card)
        write_input_files(partial, inputs or {})


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise CheckpointError if saving here would destroy something that is not a checkpoint."""
    check_replaceable(path, FILES)


@reads_folder
def load(
    path_or_name: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    history: HistoryConfig | None = None,
) -> Backbone:
    """Read a checkpoint folder, ready to decode. An adapter is loaded with its base model.

    Args:
        path_or_name: The folder, ours or a published one, or the name of a checkpoint that comes
            with the package.
        device: Device of the weights. Defaults to the CPU.
        dtype: Dtype of the weights. Defaults to the saved one.
        history: How past states reach the model. Defaults to the saved settings; for a published
            model, which was trained without history, to `norm: match`, with which a state without
            past gives exactly the published function.
    """
    folder, device = checkpoint_folder(path_or_name), torch.device(device or "cpu")
    if adapter.is_adapter(folder):
        settings = adapter.read_settings(folder)
        with _base_of(folder, settings) as base:
            if fingerprint(base) != settings.base_fingerprint:
                raise CheckpointError("the model there has changed since the adapter was trained")
            backbone = load(base, device=device, dtype=dtype)
        adapter.apply_adapter(backbone, folder, settings)
        check_sums(folder, [folder / name for name in adapter.FILES])
    else:
        description = describe(folder)
        backbone = description.build_on_meta(folder)
        read_weights(backbone, folder, description.rename, device, dtype)
        check_sums(folder, [folder / CONFIG, *weight_files(folder)])
    backbone.history = history or backbone.history
    return backbone.to(device).eval()  # moves the buffers to where the weights are


@reads_folder
def outline(path_or_name: str | os.PathLike[str], *, check: bool = True) -> Backbone:
    """The model of a checkpoint on the meta device, without its weights.

    Args:
        path_or_name: As for `load`.
        check: Raise CheckpointError unless all weights are there and fit. Otherwise config.json
            alone is enough.
    """
    folder = checkpoint_folder(path_or_name)
    if adapter.is_adapter(folder):
        with _base_of(folder, adapter.read_settings(folder)) as base:
            return outline(base, check=check)
    description = describe(folder, needs_weights=check)
    backbone = description.build_on_meta(folder)
    if check:
        check_weights(backbone, folder, description.rename)
    return backbone


@reads_folder
def trained_history(path_or_name: str | os.PathLike[str]) -> HistoryConfig:
    """The history settings that a checkpoint was trained with; no history for a published model.

    `load` gives a published model a history all the same, because training starts from there. To
    decode with the model as it was published, pass the result of this function to `load`.
    """
    folder = checkpoint_folder(path_or_name)
    if adapter.is_adapter(folder):
        return adapter.read_settings(folder).history
    description = describe(folder, needs_weights=False)
    if description.is_published:
        return HistoryConfig(variant="none", norm="match")
    return description.history


@reads_folder
def fingerprint(path_or_name: str | os.PathLike[str]) -> str:
    """A short hash of the bytes of a checkpoint: config, weights, and tokenizer files if any."""
    folder = checkpoint_folder(path_or_name)
    if adapter.is_adapter(folder):
        paths = [folder / name for name in adapter.FILES]
    else:
        describe(folder)
        paths = [folder / CONFIG, *weight_files(folder), *tokenizer_files(folder)]
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


@contextlib.contextmanager
def _base_of(folder: Path, settings: adapter.AdapterSettings) -> Iterator[str]:
    """The base model of an adapter; errors about the base model name both folders."""
    try:
        if adapter.is_adapter(Path(settings.base)):
            raise CheckpointError("that is an adapter itself")
        yield settings.base
    except CheckpointError as error:
        raise CheckpointError(f"{folder} is an adapter of {settings.base}: {error}") from error
