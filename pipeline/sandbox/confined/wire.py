"""Messages between the judge and the candidate: plain values as JSON, never code.

Plain values are sent by value, so the judge compares objects of its own. Any other object stays
with the candidate, and the judge holds its number. Everything that arrives is untrusted data.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

MAX_BYTES = 1 << 23
"""Limit on the size of one message."""

TYPES = {
    kind.__name__: kind
    for kind in (bool, bytes, complex, dict, float, frozenset, int, list, object, set, str, tuple)
}
"""Types that a test may pass to the program, as in `without(items, int)`."""
SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


class WireError(Exception):
    """The other side is gone, or sent something that is not a message."""


def encode(value: Any, refer: Callable[[Any], int]) -> Any:
    """A value as JSON can hold it; `refer` gives the number of an object that is not plain.

    A subclass of a plain type counts as that type, because a `Counter` equals a dictionary.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return ["int", hex(value)]  # decimal is slow, and limited, for huge numbers
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, complex):
        return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, bytes | bytearray):
        return ["bytes", value.hex()]
    if _is_a(value, "fractions", "Fraction"):
        return ["fraction", hex(value.numerator), hex(value.denominator)]
    if _is_a(value, "decimal", "Decimal"):
        return ["decimal", str(value)]
    if isinstance(value, dict):
        return ["dict", [[encode(k, refer), encode(v, refer)] for k, v in value.items()]]
    for name, kind in SEQUENCES.items():
        if isinstance(value, kind):
            return [name, [encode(item, refer) for item in value]]
    if isinstance(value, type) and TYPES.get(value.__name__) is value:
        return ["type", value.__name__]
    return ["object", refer(value)]


def _is_a(value: Any, module: str, name: str) -> bool:
    """Whether a value is of a type whose module may not have been imported."""
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], name))


def decode(data: Any, resolve: Callable[[int], Any]) -> Any:
    """The value that `encode` encoded; `resolve` gives the object of a number.

    Raises:
        WireError: The data are not a result of `encode`.
    """
    try:
        return _decode(data, resolve)
    except (ArithmeticError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise WireError(f"a malformed value ({type(error).__name__})") from error


def _decode(data: Any, resolve: Callable[[int], Any]) -> Any:
    if data is None or isinstance(data, bool | str):
        return data
    tag, *rest = data
    if tag in SEQUENCES:
        return SEQUENCES[tag](_decode(item, resolve) for item in rest[0])
    if tag == "dict":
        return {_decode(k, resolve): _decode(v, resolve) for k, v in rest[0]}
    if tag == "object":
        return resolve(int(rest[0]))
    return _SCALARS[tag](*rest)


def _fraction(numerator: str, denominator: str) -> Any:
    from fractions import Fraction  # slow to import, and rarely needed

    return Fraction(int(numerator, 16), int(denominator, 16))


def _decimal(digits: str) -> Any:
    from decimal import Decimal

    return Decimal(digits)


_SCALARS: dict[str, Callable[..., Any]] = {
    "int": lambda digits: int(digits, 16),
    "float": float.fromhex,
    "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
    "bytes": bytes.fromhex,
    "fraction": _fraction,
    "decimal": _decimal,
    "type": TYPES.__getitem__,
}


class Channel:
    """One end of the socket between judge and candidate: a length, then JSON of that length."""

    def __init__(self, number: int) -> None:
        self._number = number

    def send(self, message: Any) -> None:
        data = json.dumps(message).encode()
        if len(data) > MAX_BYTES:
            raise WireError(f"a value of {len(data)} bytes exceeds the limit of {MAX_BYTES}")
        try:
            rest = memoryview(len(data).to_bytes(4, "big") + data)
            while rest:
                rest = rest[os.write(self._number, rest) :]
        except OSError as error:
            raise WireError("the other side is gone") from error

    def receive(self) -> Any:
        length = int.from_bytes(self._read(4), "big")
        if length > MAX_BYTES:
            raise WireError(f"a message of {length} bytes exceeds the limit of {MAX_BYTES}")
        try:
            return json.loads(self._read(length))
        except (ValueError, RecursionError) as error:
            raise WireError("a message that is not JSON") from error

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                part = os.read(self._number, min(count - len(data), 1 << 20))
            except OSError as error:
                raise WireError("the other side is gone") from error
            if not part:
                raise WireError("the other side is gone")
            data += part
        return bytes(data)
