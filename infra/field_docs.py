"""What the fields of a dataclass mean: the text below each field, and the class's own.

Python keeps no text of fields, so it is read from the source of the class, which every
installation has.
"""

import ast
import functools
import inspect
import itertools
import textwrap


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The text below each field of a class, with those that it inherits, in one line each."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        docs |= _own_docs(base)
    return docs


def class_doc(kind: type) -> str:
    """The first paragraph of a class's text, in one line; empty if it has none of its own."""
    doc = vars(kind).get("__doc__") or ""
    if doc.startswith(f"{kind.__name__}("):  # which dataclasses write where there is none
        return ""
    return one_line(inspect.cleandoc(doc).split("\n\n")[0])


def one_line(text: str) -> str:
    return " ".join(text.split())


def _own_docs(kind: type) -> dict[str, str]:
    if kind.__module__ == "builtins":
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):  # made at run time, as in a notebook
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    docs = {}
    for statement, after in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    docs[statement.target.id] = one_line(text)
    return docs
