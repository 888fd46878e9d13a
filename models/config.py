"""Plain values to frozen dataclasses, strictly: unknown, missing and mistyped keys are errors.

All settings that come from a file pass here. This module checks keys and types; the dataclasses
check the ranges of their values (`ranges.py`).
"""

import contextlib
import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

MAX_VALUES = 100_000
"""Limit of the number of values in settings, with YAML aliases expanded."""
MAX_DEPTH = 64
"""Limit of the nesting of settings."""


def from_mapping(kind: type, values: Any, where: str) -> Any:
    """Build the dataclass `kind` from a mapping.

    Args:
        kind: A dataclass, whose fields may be numbers, strings, bools, literals, tuples, other
            dataclasses, or unions of these with None.
        values: What a JSON or YAML reader returned. If the dataclass has `PRESETS`, the key
            `preset` names the preset that the other values override.
        where: Prefix of errors, such as `sudoku.yaml: history`.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected keys and values, got {values!r}")
    presets = getattr(kind, "PRESETS", {})
    if presets and "preset" in values:
        values = _with_preset(presets, values, where)
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}
    unknown = sorted(map(str, set(values) - set(fields)))
    if unknown:
        known = sorted([*fields, *["preset"] * bool(presets)])
        raise ValueError(f"{where}: unknown keys {unknown}; {kind.__name__} takes {known}")
    missing = sorted(
        name
        for name, f in fields.items()
        if name not in values
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    )
    if missing:
        raise ValueError(f"{where}: missing keys {missing}")
    read = {name: _read(hints[name], value, f"{where}: {name}") for name, value in values.items()}
    try:
        return kind(**read)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _with_preset(
    presets: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any], where: str
) -> dict[str, Any]:
    overrides = dict(values)
    name = overrides.pop("preset")
    if name not in list(presets):
        raise ValueError(f"{where}: preset must be one of {list(presets)}, got {name!r}")
    return override(presets[name], overrides)


def override(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of values in which the overrides replace entries, recursively in sections."""
    merged = dict(values)
    for key, value in overrides.items():
        is_section = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = override(merged[key], value) if is_section else value
    return merged


def check_plain(value: Any, where: str) -> None:
    """Raise ValueError unless a value survives both YAML and JSON unchanged.

    Such a value is text, a finite number of 64 bits, true, false, none, or a list or mapping of
    them with text for keys, within `MAX_VALUES` and `MAX_DEPTH`.
    """
    pending, count = [(value, where, 0)], 0
    while pending:
        value, where, depth = pending.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            raise ValueError(
                f"{where}: settings hold at most {MAX_VALUES} values in {MAX_DEPTH} levels"
            )
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise ValueError(f"{where}: key {key!r} is not text; put it in quotes")
                pending.append((key, where, depth + 1))
                pending.append((inner, f"{where}: {key}", depth + 1))
        elif isinstance(value, list | tuple):
            pending += [(inner, f"{where}: {i}", depth + 1) for i, inner in enumerate(value)]
        elif isinstance(value, str):
            if not _is_unicode(value):
                raise ValueError(f"{where}: {value!r} holds half of a surrogate pair")
        elif not _is_plain_scalar(value):
            raise ValueError(
                f"{where} must be text, a finite number of 64 bits, true, false, none, a list or "
                f"keys and values, got {type(value).__name__}; put text in quotes"
            )


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _is_plain_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return value is None


def _read(hint: Any, value: Any, where: str) -> Any:
    if isinstance(value, str) and "\0" in value:  # which no path, name or text may hold
        raise ValueError(f"{where} must not hold a null character, got {value!r}")
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin is Literal:
        if any(type(value) is type(choice) and value == choice for choice in arguments):
            return value
        raise ValueError(f"{where} must be one of {list(arguments)}, got {value!r}")
    if origin is tuple:
        return _read_tuple(arguments, value, where)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{where} must be keys and values, got {value!r}")
        if arguments[1] is Any:  # its reader checks what it holds
            check_plain(value, where)
            return dict(value)
        return {str(k): _read(arguments[1], v, f"{where}: {k}") for k, v in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_mapping(hint, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    if type(value) is hint:  # not isinstance: true is not a number
        return value
    raise ValueError(f"{where} must be {_name(hint)}, got {value!r}")


def _read_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    """A tuple of fixed length, or with `...` of any length."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} must be a list, got {value!r}")
    if arguments[-1] is Ellipsis:
        return tuple(_read(arguments[0], v, f"{where}: {i}") for i, v in enumerate(value))
    if len(value) != len(arguments):
        raise ValueError(f"{where} must be {len(arguments)} values, got {value!r}")
    return tuple(_read(a, v, where) for a, v in zip(arguments, value, strict=True))


def _read_union(choices: tuple[Any, ...], value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        sections = [choice for choice in choices if get_origin(choice) is dict]
        if sections:
            return _read(sections[0], value, where)
        if any(dataclasses.is_dataclass(choice) for choice in choices):
            return from_mapping(_choose(choices, value, where), value, where)
    lists = [choice for choice in choices if get_origin(choice) is tuple]
    if isinstance(value, list | tuple) and len(lists) == 1:  # its own error says more
        return _read(lists[0], value, where)
    for choice in choices:
        with contextlib.suppress(ValueError):
            return _read(choice, value, where)
    names = " or ".join(_name(choice) for choice in choices)
    raise ValueError(f"{where} must be {names}, got {value!r}")


def _choose(choices: tuple[Any, ...], value: Mapping[str, Any], where: str) -> type:
    """The dataclass that a mapping is read into: the only one, or the one of its `kind`."""
    kinds: list[Any] = [choice for choice in choices if dataclasses.is_dataclass(choice)]
    if len(kinds) == 1:
        return kinds[0]
    names = {name: kind for kind in kinds for name in get_args(get_type_hints(kind)["kind"])}
    if not isinstance(value.get("kind"), str) or value["kind"] not in names:
        raise ValueError(f"{where}: kind must be one of {list(names)}, got {value.get('kind')!r}")
    return names[value["kind"]]


def _name(hint: Any) -> str:
    names = {type(None): "none", bool: "true or false"}
    return names.get(hint) or getattr(hint, "__name__", str(hint))
