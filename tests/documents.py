"""The commands and blocks in the repository's documents and in the verbs' help texts."""

import argparse
import importlib
import importlib.util
import re
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from unittest import mock

from remask.infra.cli import VERBS
from remask.infra.site.pages import split_code
from tests.places import ROOT

SHELL = ("", "bash", "sh", "console")
PROGRAMS = {
    *("remask", "python", "bash", "deepspeed", "ray"),  # which are checked
    *(
        "cd",
        "export",
        "git",
        "grep",
        "head",
        "hf",
        "mkdir",
        "npm",
        "pip",
        "printf",
        "source",
        "tar",
    ),
}
LAUNCHER_OPTIONS = {"--hostfile", "--num_gpus", "--master_port", "--master_addr"}
DRAWN = set("─│►◄└")
PLACEHOLDER = re.compile(r"<.*>|…|\.\.\.|[A-Z][A-Z_]*")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command of a document, as words."""

    where: str
    words: tuple[str, ...]
    is_whole: bool
    """Whether it can be given as it stands; a mention in a sentence may lack arguments."""

    def __str__(self) -> str:
        return f"{self.where} {' '.join(self.words)}"


@cache
def documents() -> dict[str, str]:
    """The texts of all documents by path; that of CHANGELOG.md is about the past."""
    folders = ("", "*/", "infra/docs/", "evaluation/results/", "models/shipped/*/")
    paths = {path for folder in folders for path in ROOT.glob(f"{folder}*.md")}
    names = {str(path.relative_to(ROOT)): path for path in paths}
    hidden = [name for name in names if name.startswith(".") or name == "CHANGELOG.md"]
    return {name: names[name].read_text() for name in sorted(set(names) - set(hidden))}


@cache
def blocks() -> tuple[Block, ...]:
    found = []
    for name, text in documents().items():
        inside: list[str] | None = None
        language, start = "", 0
        for number, (is_code, line) in enumerate(split_code(text), 1):
            fence = re.match(r"\s*(?:```|~~~)(\w*)", line) if is_code else None
            if fence and inside is None:
                inside, language, start = [], fence[1], number
            elif fence and inside is not None:
                found.append(Block(name, start, language, "\n".join(inside)))
                inside = None
            elif inside is not None:
                inside.append(line)
    return tuple(found)


@cache
def commands() -> tuple[Command, ...]:
    """Every command in blocks, in sentences, and in the examples of the help texts."""
    found = [x for block in blocks() if block.language in SHELL for x in _of_block(block)]
    for name, text in documents().items():
        for is_code, line in split_code(text):
            for mention in [] if is_code else re.findall(r"`([^`]+)`", line):
                found += _mentions(name, mention)
    for verb, module in VERBS.items():
        doc = importlib.import_module(module).__doc__ or ""
        lines = doc.replace("\\\n", " ").splitlines()
        for line in lines:
            if re.match(r"\s*(remask|ray|deepspeed|python) ", line):
                found += [Command(f"help of {verb}", x, True) for x in split_line(line.strip())]
    return tuple(dict.fromkeys(found))


def _of_block(block: Block) -> list[Command]:
    lines = block.text.replace("\\\n", " ").splitlines()
    first = next((x for x in lines if x.strip() and not x.startswith("#")), "")
    if set(block.text) & DRAWN:
        cells = (cell for line in lines for cell in re.split(r"\s{2,}", line.strip()))
        return [x for cell in cells for x in _mentions(block.document, cell)]
    if not split_line(first) or split_line(first)[0][0] not in PROGRAMS:
        return []  # what a command prints
    found = []
    for line in lines:
        cells = re.split(r"\s{2,}", line.partition(" #")[0].strip())
        if len(cells) > 1 and "'" not in line and '"' not in line:  # a table of commands
            found += [x for cell in cells for x in _mentions(block.document, cell)]
        else:
            found += [Command(str(block), words, True) for words in split_line(line)]
    return found


def _mentions(where: str, text: str) -> list[Command]:
    if not re.match(r"([A-Z_]+=\S+ )*(remask|python|bash|deepspeed) ", text):
        return []
    return [Command(where, words, False) for words in split_line(text)]


def split_line(line: str) -> list[tuple[str, ...]]:
    """The commands of a line without the variables that they are given."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # an apostrophe in what is no command
        return []
    found: list[list[str]] = [[]]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif set(word) <= set(";&|"):
            found.append([])
        elif set(word) <= set("<>"):
            skip = True  # the file that is read or written
        elif found[-1] or not re.fullmatch(r"[A-Z_]+=.*", word):
            found[-1].append(word)
    return [tuple(x) for x in found if x]


class ParsedError(Exception):
    """Arguments were read; the command is not run."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments


class RefusedError(Exception):
    """Arguments were refused."""


def parse(main, words: list[str]) -> argparse.Namespace:
    """What a command's own parser makes of its arguments, without running the command."""
    read, read_mixed = (
        getattr(argparse.ArgumentParser, name) for name in ("parse_args", "parse_intermixed_args")
    )

    def refuse(self, message):
        raise RefusedError(message)

    def stop(function):
        def parse_and_stop(self, args=None, namespace=None):
            raise ParsedError(function(self, args, namespace))

        return parse_and_stop

    def mixed(self, args=None, namespace=None):
        # which calls parse_args on some versions of Python
        with mock.patch.object(argparse.ArgumentParser, "parse_args", read):
            raise ParsedError(read_mixed(self, args, namespace))

    kind = argparse.ArgumentParser
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(kind, "error", refuse))
        stack.enter_context(mock.patch.object(kind, "parse_args", stop(read)))
        stack.enter_context(mock.patch.object(kind, "parse_intermixed_args", mixed))
        try:
            main(words)
        except ParsedError as parsed:
            return parsed.arguments
    raise AssertionError("the command parsed nothing")


def is_placeholder(word: str) -> bool:
    return PLACEHOLDER.fullmatch(word) is not None
