"""Helpers for reading the config.json that the makers of a model publish.

Each backbone reads its own (`Backbone.read_published`), with the published names beside the model.
A config with a feature that our backbone lacks is refused, because the model would load and compute
something else.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remask.models.checkpoints.sizes import check_size
from remask.models.config import from_mapping
from remask.models.text.tokens import find_mask, read_vocabulary

Settings = Mapping[str, Any]


def check_fixed(settings: Settings, fixed: Settings) -> None:
    """Raise ValueError for a setting that differs from the only value that a backbone supports."""
    for name, value in fixed.items():
        if settings.get(name) not in (None, value):  # null means the default, which is that value
            raise ValueError(f"{name} is {settings[name]!r}; only {value!r} can be loaded")


def pick(
    settings: Settings, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The named settings that are set; ValueError if a required one is missing or null."""
    picked = {n: settings[n] for n in (*required, *optional) if settings.get(n) is not None}
    missing = [name for name in required if name not in picked]
    if missing:
        raise ValueError(f"it lacks {missing}")
    return picked


def with_token_ids(kind: type, values: dict[str, Any], settings: Settings, folder: Path) -> Any:
    """Build a config from its values and the ids that the folder's tokenizer files give.

    Args:
        kind: The config's dataclass, with fields mask_token_id and excluded_ids.
        values: Its other fields.
        settings: The published config.json.
        folder: The folder that it lies in.
    """
    vocabulary = read_vocabulary(folder)
    vocab_size = values["vocab_size"] if "vocab_size" in values else settings.get("vocab_size")
    if type(vocab_size) is not int:
        raise ValueError(f"vocab_size must be int, got {vocab_size!r}")
    check_size("vocab_size", vocab_size)  # before its ids are listed
    ids = {
        "mask_token_id": find_mask(folder, vocabulary, settings.get("mask_token_id")),
        "excluded_ids": vocabulary.excluded_ids(vocab_size),
    }
    return from_mapping(kind, values | ids, "config")
