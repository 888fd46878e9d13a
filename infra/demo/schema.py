"""JSON Schema of a dataclass: the types, ranges, lengths and choices that its checks demand.

What stands under a field as a string is its description.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from remask.models.ranges import Range

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


@dataclass(frozen=True)
class Length:
    """Limit on the number of characters of a field."""

    limit: int


def check_lengths(values: Any) -> None:
    """Raise ValueError at the first text of a dataclass that is too long or is no Unicode."""
    for name, extras in _annotations(type(values)).items():
        text = getattr(values, name)
        if not isinstance(text, str):
            continue
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError(f"{name} holds half of a surrogate pair, which is no text")
        for extra in extras:
            if isinstance(extra, Length) and len(text) > extra.limit:
                raise ValueError(
                    f"{name} has {len(text):,} characters, more than the limit of {extra.limit:,}"
                )


def schema_of(kind: type) -> dict[str, Any]:
    """The schema of a dataclass whose fields are plain values or other dataclasses."""
    notes = _field_notes(kind)
    properties: dict[str, Any] = {}
    required: list[str] = []
    hints = get_type_hints(kind, include_extras=True)
    for spec in dataclasses.fields(kind):
        schema = _schema_of_hint(hints[spec.name])
        if note := notes.get(spec.name):
            schema["description"] = note
        if spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            required.append(spec.name)
        elif spec.default is not dataclasses.MISSING and spec.default is not None:
            schema["default"] = spec.default
        properties[spec.name] = schema
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(kind) or "").split()),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema_of_hint(hint: Any) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = _schema_of_hint(arguments[0])
        for extra in arguments[1:]:
            schema |= _limits(extra)
        return schema
    if origin is Literal:
        choices = list(arguments)
        return {"type": "string"} | (
            {"const": choices[0]} if len(choices) == 1 else {"enum": choices}
        )
    if origin in (Union, types.UnionType):
        return _schema_of_union(arguments)
    if origin in (list, tuple):
        return {"type": "array", "items": _schema_of_hint(arguments[0])}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return schema_of(hint)
    return {"type": PLAIN[hint]}


def _schema_of_union(choices: tuple[Any, ...]) -> dict[str, Any]:
    schemas = [_schema_of_hint(choice) for choice in choices]
    if all(set(schema) == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _limits(extra: Any) -> dict[str, Any]:
    if isinstance(extra, Length):
        return {"maxLength": extra.limit}
    if isinstance(extra, Range):
        return _interval(extra.interval)
    return {}


def _interval(interval: str) -> dict[str, Any]:
    low, high = (_number(text) for text in interval[1:-1].split(", "))
    limits: dict[str, Any] = {}
    if low is not None:
        limits["exclusiveMinimum" if interval[0] == "(" else "minimum"] = low
    if high is not None:
        limits["exclusiveMaximum" if interval[-1] == ")" else "maximum"] = high
    return limits


def _number(text: str) -> int | float | None:
    if text.endswith("inf"):
        return None
    base, _, power = text.partition("^")
    value = float(base) if "." in base else int(base)
    return value ** int(power) if power else value


def _annotations(kind: type) -> dict[str, tuple[Any, ...]]:
    """What is said about each field's type besides the type; empty for fields without."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: get_args(hints[field.name])[1:]
        if get_origin(hints[field.name]) is Annotated
        else ()
        for field in dataclasses.fields(kind)
    }


def _field_notes(kind: type) -> dict[str, str]:
    """The string under each field, in one line; those of the classes it extends too."""
    notes = {}
    for base in kind.__bases__:
        if dataclasses.is_dataclass(base):
            notes |= _field_notes(base)
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    for field, following in itertools.pairwise(definition.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            notes[field.target.id] = " ".join(str(following.value.value).split())
    return notes
