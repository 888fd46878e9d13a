"""The process that renders chat templates: a request a line on standard input, a reply a line back.

Run as a script by `chat_template.py`, with the folders of jinja2 and its parts as arguments; it
imports nothing else of ours. A template may loop endlessly or double a text until memory ends, in
more ways than can be listed; the kernel ends the process then, and nothing else is lost.
"""

import contextlib
import datetime
import functools
import json
import resource
import sys
from typing import Any

CPU_S = 2
"""Seconds of computing for one conversation."""
MEMORY_MB = 512
"""Address space."""
MOST_CHARACTERS = 1 << 24
"""Of what is rendered."""
REASON_LENGTH = 200
"""Characters of an error that are passed on."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    for line in sys.stdin.buffer:
        _allow(CPU_S)
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _allow(seconds: int) -> None:
    """So much more computing for this process, which the kernel ends at the next second."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + 1 + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = until if hard == resource.RLIM_INFINITY else min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        text = _compile(request["template"]).render(request["variables"])
    except Exception as error:  # whatever a template does wrong, jinja2's errors and Python's
        reason = " ".join(f"{type(error).__name__}: {error}"[:REASON_LENGTH].split())
        return {"error": reason}
    if len(text) > MOST_CHARACTERS:
        return {"error": f"it gives {len(text)} characters, more than {MOST_CHARACTERS}"}
    return {"text": text}


@functools.lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    """A template in the environment that chat templates are written for, which transformers set."""
    from jinja2 import Environment, TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks what the assistant said; here it only says it."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, **settings: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **settings})

    environment: Environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment.from_string(template)


if __name__ == "__main__":
    sys.path += sys.argv[1:]
    main()
