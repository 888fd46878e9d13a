"""HumanEval: the body of a function from its signature and docstring. It is never trained on."""

import ast
from dataclasses import asdict, dataclass

from remask.pipeline.benchmarks.reading import JsonRow, read_records, text_field, unix_newlines
from remask.pipeline.benchmarks.task import QUESTION, Task


@dataclass(frozen=True, kw_only=True)
class CompletionTask:
    """A task of HumanEval: complete a function."""

    task_id: str
    prompt: str
    """Imports, helpers if any, then a signature with its docstring."""
    entry_point: str
    """The function's name."""
    reference: str
    """A completion that passes the test."""
    test: str
    """A program that defines `check(candidate)`."""


HUMANEVAL = Task(
    chat_template=(
        "Complete this Python function, and write all of it in one block of code.\n\n"
        f"```python\n{QUESTION}\n```"
    ),
    plain_template=QUESTION,
    question="{prompt}",
    answer="```python\n{prompt}{reference}```",
    fields=asdict,
)


def read_humaneval(data: str, split: str = "test") -> list[CompletionTask]:
    """HumanEval, such as `openai/openai_humaneval`."""
    return read_records(data, split, _task)


def _task(row: JsonRow, number: int) -> CompletionTask:
    task = CompletionTask(
        task_id=str(row["task_id"]),
        prompt=unix_newlines(text_field(row, "prompt")),
        entry_point=text_field(row, "entry_point"),
        reference=unix_newlines(text_field(row, "canonical_solution")),
        test=unix_newlines(text_field(row, "test")),
    )
    try:
        trees = [ast.parse(task.prompt + task.reference), ast.parse(task.test)]
    except SyntaxError as error:
        raise ValueError(f"it is not Python: {error}") from error
    for tree, name in zip(trees, (task.entry_point, "check"), strict=True):
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            raise ValueError(f"nothing defines the function {name}")
    return task
