"""Targets with bugs planted in them: what the suite must catch, and tell apart."""

import ctypes
import json
import sys
import time
from random import Random

from tests.fuzz.case import Case, Target, ViolationError


def make(rng: Random) -> Case:
    """One input in four is bad."""
    is_bad = rng.randrange(4) == 0
    return Case({"input": b"bad" if is_bad else b"good"}, (), ("bad",) * is_bad, ("input",))


def make_none(rng: Random) -> Case:
    """A target that is broken itself."""
    raise RuntimeError("no input")


def raises(case: Case) -> None:
    if case.files["input"] == b"bad":
        json.loads("{")


def hangs(case: Case) -> None:
    while case.files["input"] == b"bad":
        pass


def sleeps(case: Case) -> None:
    while case.files["input"] == b"bad":
        time.sleep(0.01)


def dies(case: Case) -> None:
    if case.files["input"] == b"bad":
        ctypes.string_at(0)


def takes_memory(case: Case) -> None:
    if case.files["input"] == b"bad":
        bytearray(1 << 44)


def refuses(case: Case) -> None:
    """Every input, in a line that names it."""
    raise ValueError("input is of no use; give another")


def names_nothing(case: Case) -> None:
    if case.files["input"] == b"bad":
        raise ValueError("buffer size must be a multiple of element size")


def writes_escapes(case: Case) -> None:
    if case.files["input"] == b"bad":
        sys.stderr.write("remask: input holds \x1b[31mred\n")
        raise SystemExit(2)


def violates(case: Case) -> None:
    if case.files["input"] == b"bad":
        raise ViolationError("a file was removed")


BUGS = {
    "raises": raises,
    "hangs": hangs,
    "sleeps": sleeps,
    "dies": dies,
    "takes-memory": takes_memory,
    "refuses": refuses,
    "names-nothing": names_nothing,
    "writes-escapes": writes_escapes,
    "violates": violates,
}
TARGETS = (
    *(Target(name, make, run) for name, run in BUGS.items()),
    Target("makes-none", make_none, refuses),
)
