"""The judge's side: runs the tests, and asks the candidate, in another sandbox, for its values.

The program never sees the tests, the expected results, the token or the pipe for the verdict. All
names in a test are the judge's own, except those that the program must define.
"""

import builtins
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from remask.pipeline.sandbox.confined.limits import restrict
from remask.pipeline.sandbox.confined.wire import Channel, WireError, decode, encode


class CandidateError(Exception):
    """The program raised something other than an `Exception`, such as SystemExit."""


class CandidateMemoryError(Exception):
    """The program ran out of memory."""


class NoCandidateError(Exception):
    """The program's process did not start, which is not the program's fault."""


class Candidate:
    """The program at the other end of the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def wait(self) -> None:
        """Wait until the program is loaded."""
        try:
            self._channel.receive()  # "ready", sent before the program runs
        except WireError as error:
            raise NoCandidateError("the candidate's process did not start") from error
        self._answer()

    def name(self, name: str) -> Any:
        """The program's object of a name."""
        self._channel.send(["name", name])
        return self._answer()

    def ask(self, operation: str, *args: Any) -> Any:
        self._channel.send([operation, encode(list(args), _number)])
        return self._answer()

    def _answer(self) -> Any:
        reply = self._channel.receive()
        if isinstance(reply, list) and len(reply) == 2 and reply[0] == "value":
            return decode(reply[1], lambda number: Remote(self, number))
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == "raised":
            raise _exception(str(reply[1]), str(reply[2]))
        raise WireError("the program sent something that is not a reply")


class Remote:
    """A reference to an object of the candidate.

    It equals itself and nothing else: the program's own `__eq__` is never called.
    """

    def __init__(self, candidate: Candidate, number: int) -> None:
        # Unusual names, because every other attribute is the program's.
        object.__setattr__(self, "_remote_number", number)
        object.__setattr__(self, "_remote_ask", candidate.ask)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._remote_ask("call", self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._remote_ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._remote_ask("setattr", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._remote_ask("getitem", self, key)

    def __iter__(self) -> Iterator[Any]:
        items = self._remote_ask("list", self)
        return iter(items if isinstance(items, list) else [])

    def __len__(self) -> int:
        return int(self._remote_ask("len", self))

    def __bool__(self) -> bool:
        return self._remote_ask("bool", self) is True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and other._remote_number == self._remote_number

    def __hash__(self) -> int:
        return hash(self._remote_number)


def _number(value: Any) -> int:
    if isinstance(value, Remote):
        return value._remote_number
    raise TypeError(f"a test cannot pass a {type(value).__name__} to the program")


def _exception(name: str, text: str) -> Exception:
    """The program's exception as one of the judge's own."""
    kind = getattr(builtins, name, None)
    if kind is MemoryError:
        return CandidateMemoryError(text)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:  # UnicodeDecodeError and others take more than a message
            return ValueError(text)
    return CandidateError(text)


def judge(channel: Channel, task: dict[str, Any]) -> tuple[str, str]:
    """Status and detail of a program, by the `setup`, `names` and `tests` of a task."""
    candidate = Candidate(channel)
    try:
        candidate.wait()
        space: dict[str, Any] = {"__name__": "tests"}
        for name in task["names"]:
            space[name] = candidate.name(name)
        _run(task["setup"], space)
    except BaseException as error:
        return _blame(error)
    for test in task["tests"]:
        try:
            _run(test, space)
        except AssertionError as error:
            return "failed", f"{test}: {error}" if str(error) else test
        except BaseException as error:
            status, detail = _blame(error)
            return status, f"{test}: {detail}"
    return "passed", ""


def _run(code: str, space: dict[str, Any]) -> None:
    exec(compile(code, "tests.py", "exec", dont_inherit=True), space)


def _blame(error: BaseException) -> tuple[str, str]:
    kinds: dict[type[BaseException], str] = {
        CandidateMemoryError: "memory",
        CandidateError: "died",
        WireError: "died",
        NoCandidateError: "absent",
    }
    status = next((s for kind, s in kinds.items() if isinstance(error, kind)), "error")
    return status, _describe(error)


def _describe(error: BaseException) -> str:
    text = str(error)
    return text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}"


def main() -> None:
    """Arguments: the socket's file descriptor, then the limits. Standard input: the task."""
    verdict = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what tests print is not the verdict
    task = json.load(sys.stdin.buffer)
    channel = Channel(int(sys.argv[1]))
    _write(verdict, {"ready": True})
    restrict(sys.argv[2])
    status, detail = judge(channel, task)
    token = task["token"] if status == "passed" else None
    _write(verdict, {"status": status, "detail": detail[:2000], "token": token})


def _write(file: Any, message: dict[str, Any]) -> None:
    file.write(json.dumps(message) + "\n")
    file.flush()
