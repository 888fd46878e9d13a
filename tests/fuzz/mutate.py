"""Small changes to sound bytes and values: some that damage makes, some that an attacker would.

Every function takes a generator of chance and returns what it made with a note of what it did.
"""

import copy
import datetime
import json
from collections.abc import Hashable
from random import Random
from typing import Any

import yaml

DEEP, GIANT = "fuzz-deep-nesting", "fuzz-giant-number"
"""Stand for what cannot be written as a value of Python's: thousands of lists within each other,
and a number of thousands of digits."""
MARKUP = "fuzz-markup"
"""A tag that no page of ours has."""

TEXTS = (
    *(
        "",
        " ",
        "\n",
        "\t",
        "0",
        "-1",
        "nan",
        "null",
        "true",
        "~",
        "=",
        ".",
        "..",
        "/",
        "*",
        "{",
        "}",
    ),
    *("{0.__class__}", "{prompt!r:>99999}", "%s%n", "\\", '"', "'", "`", "$(id)", "; --", "--help"),
    *("\0", "a\0b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\r", "\x7f", "\x9b31m", "\u202e"),
    *("\u2028", "\ud800", "\U0010ffff", "é" * 60, "𝟙", "٣", "²", "[/red]", "[bold", "[link=x]"),
    *(
        "../canary",
        "../../canary",
        "/etc/hostname",
        "file:///etc/hostname",
        "zip://a::b",
        "dask://x",
    ),
    *("memory://fuzz", "local://", "http://[", "://", "a://b", "nowhere", "x" * 300, "y" * 5000),
    *(f"<{MARKUP} onload=x>", f'"><{MARKUP}>', f"</script><{MARKUP}>", f"-->{MARKUP}<!--", "&lt;"),
    *("__class__", "__init__", "kind", "preset", "self", "[MASK]", "<|mdm_mask|>"),
)
NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 15, 16, 127, 128, 255, 256, 32767, 65535, 65536, -128, -32768),
    *(10**5, 10**6, 10**9, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30),
    *(-(2**31), -(2**63), -(10**30), 10**400, 0.0, -0.0, 0.5, 1.5, -0.1, 1e-320, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
INTEGERS = tuple(x for x in NUMBERS if isinstance(x, int))
OTHERS = (None, True, False, [], {}, [[]], [None], [{}], {"": None}, {"kind": None}, DEEP, GIANT)
YAML_ONLY = (
    *(datetime.date(2024, 2, 29), datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), b"\x00\xff"),
    *({"a", "b"}, {1: 2}, {None: 1}, {True: False}, {1.5: "x"}),
)
YAML_PARTS = (
    *(
        "- ",
        ": ",
        "? ",
        "# ",
        "| ",
        "> ",
        "& ",
        "* ",
        "!!",
        "%",
        "@",
        "`",
        "<<: ",
        "---\n",
        "...\n",
    ),
    *("&a [*a]", "&a {k: *a}", "<<: {a: 1}", "!!python/object/apply:os.getcwd []", "!!binary aGk="),
    *(
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!timestamp 2024-01-01",
        "2024-13-45",
        "1_000",
        "0o17",
        "1:30",
    ),
    *(
        "!!float nan",
        ".inf",
        "=",
        "\ufeff",
        "\x85",
        "\u2028",
        "\t",
        "!<tag:x> y",
        "!local z",
        "[",
        "{",
    ),
    *("[" * 3000, "{a: " * 1500, "- " * 3000, "9" * 5000, "!!int ''", "!!null x", "!!bool maybe"),
    *("? [a]\n: b\n", "? {a: 1}\n: b\n", "!!float x", "!!int 0x", "!!timestamp x", "!!map []"),
)
BYTE_PARTS = (
    *(b"\0", b"\0" * 8, b"\xff", b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\0\0\0"),
    *(b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\xff" * 7 + b"\x7f", b"\xc0\x80", b"\xed\xa0\x80"),
    *(b"PAR1", b"{", b"}", b"[", b'"', b"\n", b"\r", b" ", b"NaN", b"-", b"1e999", b"\x1b[2J"),
)


CHANGES = (*("replace",) * 3, *("near",) * 4, "remove", "key", "swap", "wrap")
"""Of a tree: a value that is nearly right passes the first checks, and meets the next."""


def few(rng: Random, most: int = 3) -> int:
    """How many changes to make: one more often than not, so that it is all that is wrong."""
    return 1 if rng.random() < 0.6 else rng.randint(1, most)


def text(rng: Random) -> str:
    """Words that code may stumble over."""
    return rng.choice(TEXTS)


def value(rng: Random, *, is_yaml: bool = False) -> Any:
    """A value that does not belong where it will stand."""
    kinds: list[tuple[Any, ...]] = [TEXTS, NUMBERS, NUMBERS, OTHERS]
    chosen = rng.choice([*kinds, YAML_ONLY] if is_yaml else kinds)
    return copy.deepcopy(rng.choice(chosen))


def mutate_bytes(data: bytes, rng: Random, *, most: int = 3) -> tuple[bytes, list[str]]:
    """Bits flipped, parts cut out, repeated, moved, zeroed or put in."""
    notes = []
    for _ in range(few(rng, most)):
        data, note = _mutate_bytes(data, rng)
        notes.append(note)
    return data, notes


def _mutate_bytes(data: bytes, rng: Random) -> tuple[bytes, str]:
    start = rng.randrange(len(data) + 1)
    if len(data) > 64 and rng.random() < 0.3:  # headers and footers say how the rest is read
        start = rng.choice((rng.randrange(32), len(data) - rng.randrange(1, 32)))
    size = min(len(data) - start, 1 << rng.randrange(10))
    stop = start + size
    match rng.choice(("flip", "byte", "cut", "delete", "repeat", "move", "zero", "insert", "part")):
        case "flip" if size:
            bit = rng.randrange(8)
            changed = bytes([data[start] ^ 1 << bit])
            return data[:start] + changed + data[start + 1 :], f"bit {bit} of byte {start} flipped"
        case "byte" if size:
            new = rng.randrange(256)
            return data[:start] + bytes([new]) + data[start + 1 :], f"byte {start} = {new}"
        case "cut":
            return data[:start], f"cut after {start} bytes"
        case "delete":
            return data[:start] + data[stop:], f"{size} bytes at {start} deleted"
        case "repeat":
            times = rng.choice((1, 2, 50))
            return data[:stop] + data[start:stop] * times + data[stop:], f"{start}:{stop} repeated"
        case "move":
            to = rng.randrange(len(data) + 1)
            return data[:to] + data[start:stop] + data[to + size :], f"{start}:{stop} put at {to}"
        case "zero":
            return data[:start] + bytes(size) + data[stop:], f"{size} bytes at {start} zeroed"
        case "insert":
            new = rng.randbytes(rng.randint(1, 16))
            return data[:start] + new + data[start:], f"{new!r} put in at {start}"
        case _:
            part = rng.choice(BYTE_PARTS)
            return data[:start] + part + data[start + len(part) :], f"{part!r} put over {start}"


def mutate_value(
    values: Any, rng: Random, *, most: int = 3, is_yaml: bool = False
) -> tuple[Any, list[str]]:
    """A tree of plain values, with some of them replaced, removed, renamed or added."""
    values, notes = copy.deepcopy(values), []
    for _ in range(few(rng, most)):
        holder = {"": values}
        notes.append(_mutate_tree(holder, rng, is_yaml))
        values = holder.get("")
    return values, notes


def _mutate_tree(holder: dict[str, Any], rng: Random, is_yaml: bool) -> str:
    places = list(_places(holder, ""))
    at, container, key = rng.choice(places)
    if len(places) > 1 and not at:  # the whole is replaced too, but seldom
        at, container, key = rng.choice(places)
    match rng.choice(CHANGES):
        case "near":
            container[key] = near(container[key], rng)
        case "remove" if at:
            del container[key]
            return f"{at} removed"
        case "key" if isinstance(container[key], dict):
            section = container[key]
            name = rng.choice((text(rng), *map(str, section)))
            if is_yaml and rng.random() < 0.2:
                name = rng.choice((1, None, True, 1.5, datetime.date(2024, 1, 1)))
            old = rng.choice([*section, None])
            new = section.pop(old) if old is not None and rng.random() < 0.5 else value(rng)
            section[name] = new
            return f"{at}: {old!r} is now {name!r} = {short(new)}"
        case "swap":
            other_at, other, other_key = rng.choice(places)
            container[key] = copy.deepcopy(other[other_key])
            return f"{at} = what {other_at} is"
        case "wrap":
            old = container[key]
            container[key] = rng.choice(([old], [old, old], {"kind": old}, {"x": old}, str(old)))
        case _:
            container[key] = value(rng, is_yaml=is_yaml)
    return f"{at} = {short(container[key])}"


def _places(container: Any, at: str) -> Any:
    """Every place of a tree: its name, what holds it, and its key or number there."""
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, inner in list(items)[:64]:
        name = f"{at}.{key}" if at else str(key)
        yield name, container, key
        if isinstance(inner, dict | list):
            yield from _places(inner, name)


def near(old: Any, rng: Random) -> Any:
    """Nearly what it was, so that checks of the type pass."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice((old + 1, old - 1, -old, old * 10**6, old // 2, *INTEGERS))
    if isinstance(old, float):
        return rng.choice((old * -1, old * 1e12, old + 1, old / 1e12, float("nan"), float("inf")))
    if isinstance(old, str):
        at = rng.randrange(len(old) + 1)
        return rng.choice((old[:at], old + text(rng), old[:at] + text(rng) + old[at:], old * 40))
    if isinstance(old, list):
        return rng.choice((old[:-1], old + old, old[::-1], [*old, value(rng)], old * 50))
    return value(rng)


def to_json(values: Any) -> bytes:
    """As Python's writer has it, which knows NaN; deep and giant values written out."""
    return _written_out(json.dumps(_plain_keys(values)), '"').encode()


def to_yaml(values: Any) -> bytes:
    """The same in YAML."""
    dumped = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return _written_out(dumped, "").encode("utf-8", "surrogatepass")


def _written_out(dumped: str, quote: str) -> str:
    dumped = dumped.replace(f"{quote}{DEEP}{quote}", "[" * 3000 + "]" * 3000)
    return dumped.replace(f"{quote}{GIANT}{quote}", "9" * 5000)


def _plain_keys(values: Any) -> Any:
    if isinstance(values, dict):
        return {str(k): _plain_keys(v) for k, v in values.items()}
    return [_plain_keys(v) for v in values] if isinstance(values, list) else values


def mutate_json(data: bytes, rng: Random, *, most: int = 3) -> tuple[bytes, list[str]]:
    """A JSON file, changed by value or by byte."""
    if rng.random() < 0.25:
        return mutate_bytes(data, rng, most=most)
    values, notes = mutate_value(json.loads(data), rng, most=most)
    return to_json(values), notes


def mutate_text(data: str, rng: Random, parts: tuple[str, ...]) -> tuple[str, list[str]]:
    """A text with parts of a grammar put in, and pieces taken out and repeated."""
    notes = []
    for _ in range(few(rng)):
        at = rng.randrange(len(data) + 1)
        stop = min(len(data), at + rng.choice((0, 0, 1, 5, 40)))
        part = rng.choice((*parts, data[at:stop] * 3, text(rng)))
        data = data[:at] + part + data[stop:]
        notes.append(f"{short(part)} in place of {stop - at} characters at {at}")
    return data, notes


def keys_and_texts(values: Any) -> list[str]:
    """All keys and texts of a tree that are long enough to mean something in a message."""
    texts: list[Hashable] = []
    if isinstance(values, dict):
        texts = [*values]
    inner = values.values() if isinstance(values, dict) else values
    if isinstance(values, dict | list):
        texts += [x for part in inner for x in keys_and_texts(part)]
    elif isinstance(values, str):
        texts = [values, *values.split()]
    return [x for x in map(str, texts) if len(x) > 2]


def short(new: Any) -> str:
    said = repr(new)
    return said if len(said) <= 60 else f"{said[:50]}... ({len(said):,} characters)"
