"""Recipes: strict reading of YAML into frozen dataclasses, with `key=value` overrides."""

import hashlib
import json
from pathlib import Path
from typing import Any

from remask.models.config import from_mapping
from remask.pipeline.runtime.plain_yaml import read_yaml


def load_recipe(kind: type, path: str | Path, overrides: list[str]) -> Any:
    """Read a recipe file, apply `section.key=value` overrides, and check the result.

    Raises:
        ValueError: The file cannot be read or a value is wrong; the message names file and key.
    """
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ValueError(f"cannot read recipe {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    values = read_yaml(text, str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected keys and values, got {values!r}")
    for override in overrides:
        _apply(values, override)
    return from_mapping(kind, values, str(path))


def digest(values: Any) -> str:
    """A short hash of plain values, the same on every machine."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ValueError(f"an override is section.key=value, got {override!r}")
    *sections, last = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ValueError(f"{override!r}: {section} is a value, not a section")
    values[last] = read_yaml(text, f"{override!r}: the value")
