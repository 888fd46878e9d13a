"""Checkpoints as folders: safetensors weights and the config that shaped them.

    config.json          format, backbone kind, its config, the history settings
    model.safetensors    one tensor per parameter
    README.md            where it comes from, if it was trained by a recipe
    SHA256SUMS           of the files above; `load` checks those it reads

Folders as LLaDA, Lumina-DiMOO, Dream and masked language models are published are read too
(`published.py`). Nothing is unpickled and no code is run from a checkpoint. A folder appears whole
or not at all.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from remask.models.backbones.backbone import Backbone
from remask.models.backbones.dream import DreamConfig, DreamMDM
from remask.models.backbones.llada import LladaConfig, LladaMDM
from remask.models.backbones.lumina import LuminaConfig, LuminaMDM
from remask.models.backbones.masked_lm import MaskedLM, MaskedLMConfig
from remask.models.backbones.sudoku import SudokuConfig, SudokuMDM
from remask.models.checkpoints import adapter
from remask.models.checkpoints.folder import (
    CheckpointError,
    check_replaceable,
    check_sums,
    reads_folder,
    replaced,
)
from remask.models.checkpoints.published import find_published, read_config
from remask.models.checkpoints.sizes import build, on_meta
from remask.models.checkpoints.weights import (
    WEIGHTS,
    Rename,
    check_weights,
    read_weights,
    unique_tensors,
    weight_files,
)
from remask.models.config import from_mapping
from remask.models.history import HistoryConfig
from remask.models.text.tokens import tokenizer_files

FORMAT = 1
CONFIG, CARD = "config.json", "README.md"
OURS = {"format", "kind", "config", "history"}
SHIPPED = Path(__file__).parents[1] / "shipped"
"""Checkpoints that come with the package, by name."""

# A new backbone is one line here.
BACKBONES: dict[str, tuple[type, type]] = {
    DreamMDM.kind: (DreamConfig, DreamMDM),
    LladaMDM.kind: (LladaConfig, LladaMDM),
    LuminaMDM.kind: (LuminaConfig, LuminaMDM),
    MaskedLM.kind: (MaskedLMConfig, MaskedLM),
    SudokuMDM.kind: (SudokuConfig, SudokuMDM),
}


def is_shipped(path_or_name: str | os.PathLike[str]) -> bool:
    """Is this the name of a checkpoint that comes with the package? A folder goes first."""
    name = str(path_or_name)
    is_name = bool(name) and name == Path(name).name and not os.path.exists(name)
    return is_name and os.path.isfile(SHIPPED / name / CONFIG)  # false for names too long, too


def _folder(path_or_name: str | os.PathLike[str]) -> Path:
    return SHIPPED / path_or_name if is_shipped(path_or_name) else Path(path_or_name)


def create(settings: Mapping[str, Any], history: HistoryConfig | None = None) -> Backbone:
    """A new backbone with random weights, from its kind and config: {kind: sudoku, side: 9}."""
    values = dict(settings)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in BACKBONES:
        raise ValueError(f"model: kind must be one of {sorted(BACKBONES)}, got {kind!r}")
    config_type, backbone_type = BACKBONES[kind]
    config = from_mapping(config_type, values, "model")
    try:
        return build(lambda: backbone_type(config, history))
    except ValueError as error:
        raise ValueError(f"model: {error}") from error


def save(
    backbone: Backbone,
    path: str | os.PathLike[str],
    *,
    tensors: Mapping[str, torch.Tensor] | None = None,
    card: str | None = None,
) -> None:
    """Write a checkpoint folder, replacing a checkpoint that is there but nothing else.

    Args:
        backbone: The model.
        path: The folder.
        tensors: Its weights, where the model itself does not hold them whole.
        card: What to tell people about it, as Markdown.
    """
    with replaced(path, (CONFIG, WEIGHTS, CARD)) as aside:
        settings = {
            "format": FORMAT,
            "kind": backbone.kind,
            "config": dataclasses.asdict(backbone.config),
            "history": dataclasses.asdict(backbone.history),
        }
        (aside / CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
        weights = unique_tensors(backbone) if tensors is None else tensors
        save_file({k: x.detach().contiguous() for k, x in weights.items()}, aside / WEIGHTS)
        if card is not None:
            (aside / CARD).write_text(card)


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise CheckpointError if saving here would destroy something that is not a checkpoint."""
    check_replaceable(path, (CONFIG, WEIGHTS, CARD))


@reads_folder
def load(
    path_or_name: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    history: HistoryConfig | None = None,
) -> Backbone:
    """Read a checkpoint folder, ready to decode. An adapter comes with the model it belongs to.

    Args:
        path_or_name: The folder, ours or a published one, or the name of a checkpoint that comes
            with the package.
        device: Where to put the weights; the CPU when none.
        dtype: What to store them in; as saved when none.
        history: How past states reach the model; as saved when none. A published model has seen
            none, and starts from its own function: `norm: match`.
    """
    folder, device = _folder(path_or_name), torch.device(device or "cpu")
    if adapter.is_adapter(folder):
        settings = adapter.read_settings(folder)
        with _base_of(folder, settings) as base:
            if fingerprint(base) != settings.base_fingerprint:
                raise CheckpointError("that is another model by now")
            backbone = load(base, device=device, dtype=dtype)
        adapter.put_on(backbone, folder, settings)
        check_sums(folder, [folder / name for name in adapter.FILES])
    else:
        shape = _read_shape(folder)
        backbone = _on_meta(folder, shape)
        read_weights(backbone, folder, shape.rename, device, dtype)
        check_sums(folder, [folder / CONFIG, *weight_files(folder)])
    backbone.history = history or backbone.history
    return backbone.to(device).eval()  # buffers follow the weights


@reads_folder
def outline(path_or_name: str | os.PathLike[str], *, check: bool = True) -> Backbone:
    """A checkpoint's model without its weights, on the meta device.

    With `check` they are there and fit; without, config.json alone will do.
    """
    folder = _folder(path_or_name)
    if adapter.is_adapter(folder):
        with _base_of(folder, adapter.read_settings(folder)) as base:
            return outline(base, check=check)
    shape = _read_shape(folder, has_weights=check)
    backbone = _on_meta(folder, shape)
    if check:
        check_weights(backbone, folder, shape.rename)
    return backbone


@reads_folder
def trained_history(path_or_name: str | os.PathLike[str]) -> HistoryConfig:
    """What a checkpoint's model was trained to see of past states; of a published one, nothing.

    `load` lets it see them all the same, for training starts so; to decode with it as it is, pass
    this to `load`.
    """
    folder = _folder(path_or_name)
    if adapter.is_adapter(folder):
        return adapter.read_settings(folder).history
    settings = _read_settings(folder, has_weights=False)
    if settings.keys() >= OURS:
        return _read_ours(folder, settings).history
    return HistoryConfig(variant="none", norm="match")


@reads_folder
def fingerprint(path_or_name: str | os.PathLike[str]) -> str:
    """A short hash of a checkpoint's config, weights, and tokenizer if it lies beside them: the
    same bytes, the same model."""
    folder = _folder(path_or_name)
    if adapter.is_adapter(folder):
        paths = [folder / name for name in adapter.FILES]
    else:
        _read_shape(folder)
        paths = [folder / CONFIG, *weight_files(folder), *tokenizer_files(folder)]
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


@contextlib.contextmanager
def _base_of(folder: Path, settings: adapter.AdapterSettings) -> Iterator[str]:
    """The model that an adapter belongs to; what is wrong with it is said with both names."""
    try:
        if adapter.is_adapter(Path(settings.base)):
            raise CheckpointError("that is an adapter itself")
        yield settings.base
    except CheckpointError as error:
        raise CheckpointError(f"{folder} is an adapter of {settings.base}: {error}") from error


@dataclass(frozen=True)
class _Shape:
    """What a folder's config.json says, whoever wrote it."""

    kind: str
    config: Any
    history: HistoryConfig
    rename: Rename


def _on_meta(folder: Path, shape: _Shape) -> Backbone:
    try:
        with on_meta():
            return BACKBONES[shape.kind][1](shape.config, shape.history)
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error


def _read_shape(folder: Path, *, has_weights: bool = True) -> _Shape:
    settings = _read_settings(folder, has_weights=has_weights)
    if settings.keys() >= OURS:
        return _read_ours(folder, settings)
    if "model_type" not in settings:
        raise CheckpointError(
            f"{folder / CONFIG} is not one of ours, which has format, kind, config and history, "
            "nor a published one, which has a model_type"
        )
    config = read_config(folder, settings)
    published = find_published(folder, settings)
    return _Shape(published.kind, config, HistoryConfig(norm="match"), published.rename(config))


def _read_settings(folder: Path, *, has_weights: bool) -> dict[str, Any]:
    """config.json, once everything is there that should be."""
    if not folder.is_dir():
        names = sorted(x.name for x in SHIPPED.iterdir()) if SHIPPED.is_dir() else []
        raise CheckpointError(
            f"there is no checkpoint folder at {folder}; those that come with remask: {names}"
        )
    if not (folder / CONFIG).is_file():
        model = folder / "model"
        if (model / CONFIG).is_file() or adapter.is_adapter(model):
            raise CheckpointError(f"{folder} is a run's folder; its model is {model}")
        raise CheckpointError(f"{folder} lacks {CONFIG}")
    if has_weights:
        weight_files(folder)
    try:
        settings = json.loads((folder / CONFIG).read_text())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG} is not JSON: {error}") from error
    return settings if isinstance(settings, dict) else {}


def _read_ours(folder: Path, settings: dict[str, Any]) -> _Shape:
    if type(settings["format"]) is not int or settings["format"] != FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {settings['format']}, this reader takes {FORMAT}; "
            "save it anew with a matching version"
        )
    kind = settings["kind"]
    if not isinstance(kind, str) or kind not in BACKBONES:
        raise CheckpointError(f"{folder} holds a {kind!r} backbone; known are {sorted(BACKBONES)}")
    try:
        config = from_mapping(BACKBONES[kind][0], settings["config"], "config")
        history = from_mapping(HistoryConfig, settings["history"], "history")
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    return _Shape(kind, config, history, lambda name: name)
