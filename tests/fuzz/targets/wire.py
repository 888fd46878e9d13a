"""Messages that a hostile program sends to the judge of the sandbox.

Whatever arrives, reading ends with a value or with WireError, and judging with a verdict.
"""

import json
import os
import socket
from random import Random

from remask.pipeline.sandbox.confined.judge import judge
from remask.pipeline.sandbox.confined.wire import Channel, decode, encode
from tests.fuzz.case import Case, Target, ViolationError
from tests.fuzz.mutate import mutate_bytes, mutate_value, to_json

VALUES = (
    *(None, True, "text", 7, -1, 2.5, 1 + 2j, b"bytes", [1, [2]], (1, 2), {3}, frozenset({4})),
    *({"a": [1, {"b": None}]}, {(1, 2): 3}, int, str, 10**50, float("inf")),
)
ANSWERS = (["value", ["object", 1]], ["raised", "ValueError", "no"], ["raised", "SystemExit", "0"])
TASK = {"names": ["f"], "setup": "import math", "tests": ["assert f(1) == 2", "assert f(2) in {3}"]}
STATUSES = ("passed", "failed", "error", "died", "memory", "absent")


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def make_value(rng: Random) -> Case:
    """One message, perhaps framed wrongly."""
    message = encode(rng.choice(VALUES), lambda x: 1)
    changed, notes = mutate_value(message, rng)
    data = frame(to_json(changed))
    if rng.random() < 0.3:
        data, more = mutate_bytes(data, rng)
        notes += more
    return Case({"message": data}, notes=tuple(notes))


def make_replies(rng: Random) -> Case:
    """Replies to all that the judge will ask, some of them other than they should be."""
    replies = [["ready"], ["value", None], rng.choice(ANSWERS)]
    replies += [["value", encode(rng.choice((2, 3, *VALUES)), lambda x: 1)] for _ in range(4)]
    at = rng.randrange(len(replies))
    replies[at], notes = mutate_value(replies[at], rng)
    data = b"".join(frame(to_json(reply)) for reply in replies)
    if rng.random() < 0.2:
        data, more = mutate_bytes(data, rng)
        notes += more
    return Case({"messages": data}, notes=(f"reply {at}", *notes))


def run_value(case: Case) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, case.files["message"][: 1 << 15])
        os.close(writing)
        decode(Channel(reading).receive(), lambda number: number)
    finally:
        os.close(reading)


def run_replies(case: Case) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(case.files["messages"][: 1 << 16])
        theirs.shutdown(socket.SHUT_WR)
        status, detail = judge(Channel(ours.fileno()), dict(TASK))
    if status not in STATUSES or not isinstance(detail, str):
        raise ViolationError(f"the judge's verdict is {status!r}")
    json.dumps([status, detail])


TARGETS = (
    Target("wire", make_value, run_value, share=2.0),
    Target("judge", make_replies, run_replies, share=2.0),
)
