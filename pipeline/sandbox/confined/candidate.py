"""The candidate's side: runs the generated program, then performs what the judge requests.

The program controls everything in this process and may send any reply. A reply is only ever a
value, which the judge compares with what the test expects.
"""

import builtins
import itertools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from remask.pipeline.sandbox.confined.limits import restrict
from remask.pipeline.sandbox.confined.wire import Channel, WireError, decode, encode

MAX_ITEMS = 1_000_000
"""Limit on the items taken from an iterator, which may be infinite."""

OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, args, kwargs: function(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": operator.getitem,
    "list": lambda items: list(itertools.islice(items, MAX_ITEMS)),
    "len": len,
    "bool": bool,
}


def main() -> None:
    """Arguments: the socket's file descriptor, then the limits. Standard input: the program."""
    channel = Channel(int(sys.argv[1]))
    source = sys.stdin.buffer.read().decode(errors="replace")
    channel.send("ready")
    restrict(sys.argv[2])
    module = types.ModuleType("candidate")
    sys.modules["candidate"] = module
    objects: list[Any] = [module]
    _reply(channel, objects, lambda: _load(source, module))
    while True:
        try:
            name, args = channel.receive()
        except WireError:
            return  # the judge has closed the channel
        _reply(channel, objects, lambda n=name, a=args: _perform(objects, n, a))


def _load(source: str, module: types.ModuleType) -> None:
    exec(compile(source, "candidate.py", "exec", dont_inherit=True), module.__dict__)


def _perform(objects: list[Any], name: str, args: Any) -> Any:
    if name == "name":
        return getattr(objects[0], args)
    return OPERATIONS[name](*decode(args, objects.__getitem__))


def _reply(channel: Channel, objects: list[Any], action: Callable[[], Any]) -> None:
    """Reply with the result of the action, or with the exception it raises."""

    def refer(value: Any) -> int:
        """The number of an object, the same every time, so that the judge can recognise it."""
        known = (n for n, other in enumerate(objects) if other is value)
        number = next(known, len(objects))
        if number == len(objects):
            objects.append(value)
        return number

    try:
        message = ["value", encode(action(), refer)]
    except BaseException as error:  # SystemExit too: the judge must learn about it
        message = ["raised", _builtin_name(type(error)), _text(error)]
    try:
        channel.send(message)
    except (WireError, MemoryError) as error:  # the value is too long; nothing was sent yet
        kind = "MemoryError" if isinstance(error, MemoryError) else "ValueError"
        channel.send(["raised", kind, str(error)])


def _builtin_name(kind: type[BaseException]) -> str:
    """Name of the nearest builtin base class, which the judge has too."""
    return next(c.__name__ for c in kind.__mro__ if getattr(builtins, c.__name__, None) is c)


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:2000]
    except Exception:  # a hostile __str__
        return type(error).__name__
