"""The config.json of a checkpoint: one that remask saved, or one as a model's makers publish it.

Ours has the keys format, kind, config and history. A published one has a model_type, by which the
backbone that reads it is found.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask.models.backbones import BACKBONES, Backbone
from remask.models.checkpoints import adapter
from remask.models.checkpoints.folder import CONFIG, CheckpointError
from remask.models.checkpoints.shipped import shipped_names
from remask.models.checkpoints.sizes import on_meta
from remask.models.checkpoints.weights import Rename, weight_files
from remask.models.config import from_mapping
from remask.models.history import HistoryConfig

FORMAT = 1
OUR_KEYS = {"format", "kind", "config", "history"}


@dataclass(frozen=True)
class Description:
    """What config.json says about a model."""

    backbone: type[Backbone]
    config: Any
    """An instance of the backbone's `config_type`."""
    history: HistoryConfig
    rename: Rename
    """Names of tensors in the weight files to their names in the model."""
    is_published: bool

    def build_on_meta(self, folder: Path) -> Backbone:
        """The model on the meta device, without weights."""
        try:
            with on_meta():
                return self.backbone(self.config, self.history)
        except ValueError as error:
            raise CheckpointError(f"{folder / CONFIG}: {error}") from error


def describe(folder: Path, *, needs_weights: bool = True) -> Description:
    """Read a folder's config.json.

    Args:
        folder: A checkpoint's folder, not an adapter's.
        needs_weights: Raise CheckpointError also if a weight file is missing.
    """
    settings = _read_json(folder)
    if needs_weights:
        weight_files(folder)
    if settings.keys() >= OUR_KEYS:
        return _describe_ours(folder, settings)
    if "model_type" not in settings:
        raise CheckpointError(
            f"{folder / CONFIG} is not one of ours, which has format, kind, config and history, "
            "nor a published one, which has a model_type"
        )
    backbone = _find_backbone(folder, settings)
    config = read_published_config(folder, settings)
    history = HistoryConfig(norm="match")
    return Description(
        backbone, config, history, lambda name: backbone.rename_published(config, name), True
    )


def read_published_config(folder: Path, settings: Mapping[str, Any]) -> Any:
    """The config of the backbone that reads a published config.json."""
    backbone = _find_backbone(folder, settings)
    try:
        return backbone.read_published(settings, folder)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error


def _find_backbone(folder: Path, settings: Mapping[str, Any]) -> type[Backbone]:
    """The backbone for a model_type; one whose architecture the file names takes precedence."""
    model_type, architectures = settings.get("model_type"), settings.get("architectures")
    named = architectures if isinstance(architectures, list) else []
    readers = [x for x in BACKBONES.values() if model_type in x.model_types]
    by_architecture = [x for x in readers if x.architecture is not None and x.architecture in named]
    matches = by_architecture or [x for x in readers if x.architecture is None]
    if not matches:
        known = sorted(x for backbone in BACKBONES.values() for x in backbone.model_types)
        raise CheckpointError(
            f"{folder} holds a {model_type!r} model; known model_types are {sorted(set(known))}"
        )
    return matches[0]


def _read_json(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise CheckpointError(
            f"there is no checkpoint folder at {folder}; those that come with remask: "
            f"{shipped_names()}"
        )
    if not (folder / CONFIG).is_file():
        model = folder / "model"
        if (model / CONFIG).is_file() or adapter.is_adapter(model):
            raise CheckpointError(f"{folder} is a run's folder; its model is {model}")
        raise CheckpointError(f"{folder} lacks {CONFIG}")
    try:
        settings = json.loads((folder / CONFIG).read_text())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder / CONFIG} is not JSON: {error}") from error
    return settings if isinstance(settings, dict) else {}


def _describe_ours(folder: Path, settings: Mapping[str, Any]) -> Description:
    if type(settings["format"]) is not int or settings["format"] != FORMAT:
        raise CheckpointError(
            f"{folder} has checkpoint format {settings['format']}, this reader takes {FORMAT}; "
            "save it again with a matching version"
        )
    kind = settings["kind"]
    if not isinstance(kind, str) or kind not in BACKBONES:
        raise CheckpointError(f"{folder} holds a {kind!r} backbone; known are {sorted(BACKBONES)}")
    backbone = BACKBONES[kind]
    try:
        config = from_mapping(backbone.config_type, settings["config"], "config")
        history = from_mapping(HistoryConfig, settings["history"], "history")
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    return Description(backbone, config, history, lambda name: name, False)
