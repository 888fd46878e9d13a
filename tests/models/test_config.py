"""Settings from plain values: every kind of field, every kind of mistake."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from remask.models.config import from_mapping


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.5

    def __post_init__(self) -> None:
        if self.rate > 1:
            raise ValueError(f"rate must be at most 1, got {self.rate}")


@dataclass(frozen=True, kw_only=True)
class Outer:
    count: int
    name: str = "x"
    on: bool = False
    kind: Literal["a", "b"] = "a"
    limits: tuple[int, int] | None = None
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    derived: int = field(default=3, init=False)
    parts: str | tuple[Inner, ...] = ""


def test_all_kinds_of_fields_are_read():
    values = {
        "count": 2, "name": "y", "on": True, "kind": "b", "limits": [1, 4],
        "inner": {"rate": 1}, "maybe": {"rate": 0.25},
    }  # fmt: skip
    expected = Outer(
        count=2, name="y", on=True, kind="b", limits=(1, 4), inner=Inner(rate=1.0),
        maybe=Inner(rate=0.25),
    )  # fmt: skip
    assert from_mapping(Outer, values, "r.yaml") == expected
    assert from_mapping(Outer, {"count": 1, "maybe": None}, "r.yaml") == Outer(count=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"^r.yaml: missing keys \['count'\]$"),
        ({"count": 1, "gamma": 2}, r"^r.yaml: unknown keys \['gamma'\]; Outer takes \['count', "),
        ({"count": 1, "derived": 2}, r"unknown keys \['derived'\]"),
        ({"count": True}, "^r.yaml: count must be int, got True$"),
        ({"count": "2"}, "count must be int, got '2'"),
        ({"count": 1, "name": "a\0b"}, r"name must not hold a null character, got 'a.x00b'"),
        ({"count": 1, "on": 1}, "on must be true or false, got 1"),
        ({"count": 1, "kind": "c"}, r"kind must be one of \['a', 'b'\], got 'c'"),
        ({"count": 1, "limits": [1]}, r"limits must be .* got \[1\]"),
        ({"count": 1, "inner": {"rate": 2}}, "^r.yaml: inner: rate must be at most 1, got 2.0$"),
        ({"count": 1, "maybe": {"speed": 2}}, r"^r.yaml: maybe: unknown keys \['speed'\]"),
        ({"count": 1, "inner": 3}, "inner: expected keys and values, got 3"),
        (
            {"count": 1, "parts": [{"rat": 1}]},
            r"^r.yaml: parts: 0: unknown keys \['rat'\]; Inner takes",
        ),
        (
            {"count": 1, "parts": {"rate": 1}},
            "^r.yaml: parts must be str or tuple, got {'rate': 1}$",
        ),
        (None, "r.yaml: expected keys and values, got None"),
    ],
)
def test_every_mistake_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        from_mapping(Outer, values, "r.yaml")
