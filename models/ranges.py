"""Ranges of settings, declared on the fields of a dataclass.

    @dataclass(frozen=True, kw_only=True)
    class HistoryConfig:
        decay: Annotated[float, Range("(0, 1]", "1.0 keeps all")] = 0.9
        variant: Literal["none", "hr"] = "hr"

        def __post_init__(self) -> None:
            check_fields(self, "history.")

`check_fields` checks every declared range, and every literal against its choices. None lies in
every range; of a tuple, each element must lie in the range of its field.
"""

import dataclasses
import functools
import math
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

MAX_DIGITS = 20
"""Longest integer that an error shows in full."""


@dataclasses.dataclass(frozen=True)
class Range:
    """An interval in the usual notation; it never contains infinities or NaN.

    Args:
        interval: Such as `(0, 1]`, `[1, inf)`, `[0, 2^63)` or `(-inf, inf)`.
        hint: What to do instead, appended to the error.
    """

    interval: str
    hint: str = ""

    def __contains__(self, value: float) -> bool:
        low, high = self._bounds
        above = value > low if self.interval[0] == "(" else value >= low
        return above and (value < high if self.interval[-1] == ")" else value <= high)

    def __str__(self) -> str:
        """The demand in words, as in "must be at least 1"."""
        low, high = self.interval[1:-1].split(", ")
        if (low, high) == ("-inf", "inf"):
            return "be a finite number"
        if high != "inf":
            return f"lie in {self.interval}"
        if self.interval[0] == "(":
            return f"be above {low}"
        return f"be {low} or more" if low == "0" else f"be at least {low}"

    @functools.cached_property
    def _bounds(self) -> tuple[float, float]:
        low, high = (_number(text) for text in self.interval[1:-1].split(", "))
        return low, high


def check_fields(config: Any, prefix: str = "") -> None:
    """Raise ValueError at the first field outside its range or choices, naming field and value.

    Args:
        config: A dataclass.
        prefix: Put before the field's name, such as `history.`.
    """
    for name, range_, choices in _declared(type(config)):
        value = getattr(config, name)
        if choices and value not in choices:
            raise ValueError(f"{prefix}{name} must be one of {list(choices)}, got {value!r}")
        if range_ is None or value is None:
            continue
        for number in value if isinstance(value, tuple) else (value,):
            check_number(f"{prefix}{name}", number, range_)


def check_number(name: str, value: float, range_: Range) -> None:
    """Raise ValueError if a number lies outside its range, naming both."""
    if value not in range_:
        hint = f"; {range_.hint}" if range_.hint else ""
        raise ValueError(f"{name} must {range_}, got {shorten(value)}{hint}")


def shorten(value: float) -> str:
    """A number for an error; a very long integer is given by its number of digits."""
    if not isinstance(value, int):
        return str(value)
    digits = int(abs(value).bit_length() * math.log10(2)) + 1
    return str(value) if digits <= MAX_DIGITS else f"a number of about {digits} digits"


@functools.cache
def _declared(kind: type) -> list[tuple[str, Range | None, tuple[Any, ...]]]:
    """(name, range, choices) of the fields that declare a range or choices."""
    hints = get_type_hints(kind, include_extras=True)
    declared = []
    for field in dataclasses.fields(kind):
        hint, range_ = hints[field.name], None
        if get_origin(hint) is Annotated:
            hint, *extras = get_args(hint)
            range_ = next((extra for extra in extras if isinstance(extra, Range)), None)
        choices = _choices(hint)
        if range_ or choices:
            declared.append((field.name, range_, choices))
    return declared


def _choices(hint: Any) -> tuple[Any, ...]:
    """The values that a literal, or a union of literals and None, allows; empty for other types."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    parts = get_args(hint)
    if parts and all(get_origin(x) is Literal or x is type(None) for x in parts):
        return tuple(choice for part in parts for choice in (get_args(part) or (None,)))
    return ()


def _number(text: str) -> float:
    base, _, power = text.partition("^")
    value = float(base) if base.endswith("inf") or "." in base else int(base)
    return value ** int(power) if power else value
