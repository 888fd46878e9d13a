"""Checkpoints as folders: safetensors weights and the config that shaped them.

    config.json          format, backbone kind, its config, the history settings
    model.safetensors    one tensor per parameter
    README.md            where it comes from, if it was trained by a recipe

Nothing is unpickled and no code is run from a checkpoint. A folder appears whole or not at all.
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
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from models import adapter
from models.backbone import Backbone
from models.config import from_mapping
from models.folder import CheckpointError, check_replaceable, replaced
from models.history import HistoryConfig
from models.llada import LladaConfig, LladaMDM
from models.sudoku import SudokuConfig, SudokuMDM

FORMAT = 1
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
SHIPPED = Path(__file__).parent / "checkpoints"
"""Checkpoints that come with the package, by name."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")

# A new backbone is one line here.
BACKBONES: dict[str, tuple[type, type]] = {
    LladaMDM.kind: (LladaConfig, LladaMDM),
    SudokuMDM.kind: (SudokuConfig, SudokuMDM),
}


def is_shipped(path_or_name: str | os.PathLike[str]) -> bool:
    """Is this the name of a checkpoint that comes with the package? A folder goes first."""
    name = str(path_or_name)
    is_name = bool(name) and name == Path(name).name and not Path(name).exists()
    return is_name and (SHIPPED / name / CONFIG).is_file()


def _folder(path_or_name: str | os.PathLike[str]) -> Path:
    return SHIPPED / path_or_name if is_shipped(path_or_name) else Path(path_or_name)


def create(settings: Mapping[str, Any], history: HistoryConfig | None = None) -> Backbone:
    """A new backbone with random weights, from its kind and config: {kind: sudoku, side: 9}."""
    values = dict(settings)
    kind = values.pop("kind", None)
    if kind not in BACKBONES:
        raise ValueError(f"model: kind must be one of {sorted(BACKBONES)}, got {kind!r}")
    config_type, backbone_type = BACKBONES[kind]
    return backbone_type(from_mapping(config_type, values, "model"), history)


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
        weights = backbone.state_dict() if tensors is None else tensors
        save_file({k: x.detach().contiguous() for k, x in weights.items()}, aside / WEIGHTS)
        if card is not None:
            (aside / CARD).write_text(card)


def check_target(path: str | os.PathLike[str]) -> None:
    """Raise CheckpointError if saving here would destroy something that is not a checkpoint."""
    check_replaceable(path, (CONFIG, WEIGHTS, CARD))


def load(
    path_or_name: str | os.PathLike[str],
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Backbone:
    """Read a checkpoint folder, ready to decode. An adapter comes with the model it belongs to.

    Args:
        path_or_name: The folder, or the name of a checkpoint that comes with the package.
        device: Where to put the weights; the CPU when none.
        dtype: What to store them in; as saved when none.
    """
    folder, device = _folder(path_or_name), torch.device(device or "cpu")
    if adapter.is_adapter(folder):
        settings = adapter.read_settings(folder)
        if fingerprint(settings.base) != settings.base_fingerprint:
            raise CheckpointError(
                f"{folder} is an adapter of another model than the one now in {settings.base}"
            )
        backbone = load(settings.base, device=device, dtype=dtype)
        return adapter.put_on(backbone, folder, settings).to(device).eval()
    kind, config, history = _read_settings(folder)
    with torch.device("meta"):
        backbone = BACKBONES[kind][1](config, history)
    wanted = {name: x.shape for name, x in backbone.state_dict().items()}
    tensors = _read_tensors(folder / WEIGHTS, wanted, str(device), dtype)
    backbone.load_state_dict(tensors, assign=True)
    return backbone.to(device).eval()  # buffers follow the weights


def outline(path_or_name: str | os.PathLike[str]) -> Backbone:
    """A checkpoint's model without its weights, on the meta device; they are there and fit."""
    folder = _folder(path_or_name)
    if adapter.is_adapter(folder):
        return outline(adapter.read_settings(folder).base)
    kind, config, history = _read_settings(folder)
    with torch.device("meta"):
        backbone = BACKBONES[kind][1](config, history)
    wanted = {name: x.shape for name, x in backbone.state_dict().items()}
    with _opened(folder / WEIGHTS, "cpu") as file:
        _check_tensors(folder / WEIGHTS, wanted, file)
    return backbone


def fingerprint(path_or_name: str | os.PathLike[str]) -> str:
    """A short hash of a checkpoint's config and weights: the same bytes, the same model."""
    folder = _folder(path_or_name)
    names = adapter.FILES if adapter.is_adapter(folder) else (CONFIG, WEIGHTS)
    if names != adapter.FILES:
        _read_settings(folder)
    total = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


def _read_settings(folder: Path) -> tuple[str, Any, HistoryConfig]:
    if not folder.is_dir():
        names = sorted(x.name for x in SHIPPED.iterdir()) if SHIPPED.is_dir() else []
        raise CheckpointError(
            f"there is no checkpoint folder at {folder}; those that come with remask: {names}"
        )
    pickles = sorted(x.name for x in folder.iterdir() if x.suffix in PICKLES)
    missing = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        hint = f"; {pickles} may run code when read, convert it to safetensors" if pickles else ""
        raise CheckpointError(f"{folder} lacks {' and '.join(missing)}{hint}")
    try:
        settings = json.loads((folder / CONFIG).read_text())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG} is not JSON: {error}") from error
    if not isinstance(settings, dict) or not settings.keys() >= {
        "format",
        "kind",
        "config",
        "history",
    }:
        raise CheckpointError(
            f"{folder / CONFIG} is not one of ours: it needs format, kind, config and history"
        )
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
    return kind, config, history


def _read_tensors(
    path: Path, wanted: dict[str, torch.Size], device: str, dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    with _opened(path, device) as file:
        _check_tensors(path, wanted, file)
        tensors = {}
        for name in wanted:
            tensor = file.get_tensor(name)
            if not tensor.is_floating_point():
                raise CheckpointError(f"{path}: {name} holds {tensor.dtype}, not weights")
            tensors[name] = tensor if dtype is None else tensor.to(dtype)
        return tensors


@contextlib.contextmanager
def _opened(path: Path, device: str) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device=device) as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or not safetensors: {error}") from error


def _check_tensors(path: Path, wanted: dict[str, torch.Size], file: Any) -> None:
    """By the file's header alone."""
    _check_names(path, set(wanted), set(file.keys()))
    for name, shape in wanted.items():
        found = file.get_slice(name).get_shape()
        if found != list(shape):
            raise CheckpointError(f"{path}: {name} is {found}, the config says {list(shape)}")


def _check_names(path: Path, wanted: set[str], found: set[str]) -> None:
    missing, foreign = sorted(wanted - found), sorted(found - wanted)
    if missing or foreign:
        parts = [f"lacks {missing[:3]}"] * bool(missing) + [f"has unknown {foreign[:3]}"] * bool(
            foreign
        )
        raise CheckpointError(
            f"{path} {' and '.join(parts)} ({len(missing)} missing, {len(foreign)} unknown); it "
            "does not belong to this config"
        )
