"""Whether a response is the expected text, the expected number, or matches a pattern."""

import ast
import builtins
from dataclasses import dataclass
from fractions import Fraction

import polars as pl

from remask.pipeline.judges.answers import extract_answer

MAX_DIGITS = 1000
"""Limit on the characters of a number; longer ones are none."""


def find_number(text: str) -> tuple[str, Fraction] | None:
    """The final number of a text, as it is written and as it counts; None if there is none.

    It stands after `####`, in `\\boxed{}`, after "the answer is", or is the last one. 0.5, .50 and
    1/2 are the same number, and so are 1,006 and 1006.
    """
    written = extract_answer(text, "gsm8k")
    if written is None or len(written) > MAX_DIGITS:
        return None
    try:
        return written, Fraction(written)
    except (ValueError, ZeroDivisionError):
        return None


def check_pattern(pattern: str) -> None:
    """Raise ValueError for a regular expression that cannot be used."""
    matches(pattern, "")


def matches(pattern: str, text: str) -> bool:
    """Whether a regular expression matches somewhere in a text, in time linear in its length.

    The engine is Rust's, which does not backtrack; it has no look-around and no back references.
    """
    try:
        return bool(pl.Series([text]).str.contains(pattern, strict=True).item())
    except pl.exceptions.ComputeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((x for x in lines if x.startswith("error:")), lines[0])
        raise ValueError(
            f"{pattern!r} is no regular expression: {reason.removeprefix('error:').strip()}"
        ) from error


@dataclass(frozen=True)
class ProgramTests:
    """Statements that test a program."""

    tests: tuple[str, ...]
    """Statements that raise if the program is wrong."""
    setup: str
    """Imports and definitions before them."""
    names: tuple[str, ...]
    """Names that the program must define."""


def read_tests(text: str) -> ProgramTests:
    """Tests from Python statements; ValueError if it is no Python, or tests nothing.

    Imports, assignments and definitions are the setup. Every other statement is a test. The names
    that neither they nor Python define are the program's.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the tests are no Python: {error}") from error
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef)
    is_setup = [isinstance(node, kinds) for node in tree.body]
    parts = [ast.unparse(node) for node in tree.body]
    tests = tuple(part for part, own in zip(parts, is_setup, strict=True) if not own)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = tuple(sorted(used - _bound(tree) - set(dir(builtins))))
    if not tests or not names:
        raise ValueError("the tests use nothing that a program defines, so any would pass")
    setup = "\n".join(part for part, own in zip(parts, is_setup, strict=True) if own)
    return ProgramTests(tests, setup, names)


def _bound(tree: ast.AST) -> set[str]:
    """Names that the tests themselves define."""
    bound = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.arg(arg=name):
                bound.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.alias(name=name, asname=other):
                bound.add((other or name).partition(".")[0])
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return bound
