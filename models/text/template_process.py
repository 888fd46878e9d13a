"""The process that renders chat templates: a JSON request per line in, a JSON reply per line out.

`chat_template.py` runs this file as a script, with the folders of jinja2 and its dependencies as
arguments; it imports nothing else. A template may loop endlessly or exhaust memory in more ways
than can be listed. The kernel then kills this process, and only the rendering is lost.
"""

import contextlib
import datetime
import functools
import json
import resource
import sys
from typing import Any

CPU_S = 2
"""Limit of CPU time for one conversation."""
MEMORY_MB = 512
"""Limit of the address space."""
MAX_CHARACTERS = 1 << 24
"""Limit of the rendered text."""
REASON_LENGTH = 200
"""Maximum length of an error that is passed on."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    for line in sys.stdin.buffer:
        _allow(CPU_S)
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _allow(seconds: int) -> None:
    """Allow this process so much more CPU time, rounded up; after that the kernel kills it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + 1 + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = until if hard == resource.RLIM_INFINITY else min(until, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (until, hard))


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        text = _compile(request["template"]).render(request["variables"])
    except Exception as error:  # a template can raise anything, from jinja2 or Python
        reason = " ".join(f"{type(error).__name__}: {error}"[:REASON_LENGTH].split())
        return {"error": reason}
    if len(text) > MAX_CHARACTERS:
        return {"error": f"it gives {len(text)} characters, more than {MAX_CHARACTERS}"}
    return {"text": text}


@functools.lru_cache(maxsize=8)
def _compile(template: str) -> Any:
    """Compile a template in the environment that chat templates expect, that of transformers."""
    from jinja2 import Environment, TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's words; here it renders them unchanged."""

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
