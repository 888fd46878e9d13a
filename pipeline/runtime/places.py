"""Settings that say where something is, marked on their dataclass field.

A key that names an output leaves them out: what lies at a place counts, by a hash of its own, and a
file that moves is still the same file.

    data: str = field(metadata=PLACE)
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

PLACE: Mapping[str, bool] = MappingProxyType({"is_place": True})


def without_places(config: Any) -> dict[str, Any]:
    """A dataclass as plain values, without the fields marked `PLACE`, its sections' included."""
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
