"""The page of commands: what each verb's `--help` prints."""

import contextlib
import importlib
import io
import os

from remask.infra.cli import GROUPS, VERBS, help_text

WIDTH = "96"
"""Columns of the help texts."""


def commands_page() -> str:
    """Every verb by purpose, with its help."""
    lines = ["# Commands", "", "```text", help_text(), "```"]
    for purpose, verbs in GROUPS.items():
        lines += ["", f"## {purpose.capitalize()}"]
        for verb in verbs:
            title = f"{verb.meaning[0].upper()}{verb.meaning[1:]}."
            lines += ["", f"### remask {verb.name}", "", title, ""]
            lines += ["```text", help_of(verb.name), "```"]
    return "\n".join(lines) + "\n"


def help_of(verb: str) -> str:
    """What `remask VERB --help` prints."""
    printed = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            importlib.import_module(VERBS[verb]).main(["--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return printed.getvalue().strip()
