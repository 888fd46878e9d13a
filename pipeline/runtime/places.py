"""Settings that hold a path or URI, marked on their dataclass field.

They are left out of the key that names an output. The content at a path has a hash of its own, so a
file that moves is still the same file.

    data: str = field(metadata=PLACE)
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PLACE: Mapping[str, bool] = MappingProxyType({"is_place": True})


def without_places(config: Any) -> dict[str, Any]:
    """A dataclass as plain values, without the fields marked `PLACE` in it or in its sections."""
    values = dataclasses.asdict(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if is_place(field):
            del values[field.name]
        elif dataclasses.is_dataclass(value):
            values[field.name] = without_places(value)
    return values


def is_place(field: "dataclasses.Field[Any]") -> bool:
    """Is a field marked `PLACE`?"""
    return PLACE.items() <= field.metadata.items()
