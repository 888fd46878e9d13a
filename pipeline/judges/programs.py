"""MBPP and HumanEval: extract the program of a response and run it against tests in the sandbox."""

import ast
import re

from remask.pipeline.benchmarks.humaneval import CompletionTask
from remask.pipeline.benchmarks.mbpp import BEGIN, DONE, ProgramTask
from remask.pipeline.sandbox.run import Limits, ProgramOutcome, run_python

STOPS = (DONE, "<|endoftext|>", "<|eot_id|>", "<|im_end|>")
"""Texts that end a response; [DONE] closes the few-shot examples of MBPP."""
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_PYTHON = ("", "python", "python3", "py")


def score_program(
    task: ProgramTask, response: str, *, limits: Limits | None = None, unsafe: bool = False
) -> ProgramOutcome:
    """Run the program of a response against a task's tests."""
    names = required_names(task)
    return run_python(
        extract_program(response, names),
        task.tests,
        names=names,
        setup="\n".join([*_imports(task), task.setup]),
        limits=limits,
        unsafe=unsafe,
    )


def score_completion(
    task: CompletionTask, response: str, *, limits: Limits | None = None, unsafe: bool = False
) -> ProgramOutcome:
    """Run a completed function against a task's `check`.

    The judge has its own copies of the prompt's helpers, so a program cannot replace them.
    """
    return run_python(
        complete_program(task, response),
        [f"check({task.entry_point})"],
        names=[task.entry_point],
        setup=f"{_helpers(task)}\n{task.test}",
        limits=limits,
        unsafe=unsafe,
    )


def complete_program(task: CompletionTask, response: str) -> str:
    """The program of a response, which is the whole function or a continuation of the prompt."""
    program = extract_program(response, [task.entry_point])
    if _defines(program, task.entry_point):
        return f"{_helpers(task)}\n{program}"
    return f"{task.prompt.rstrip()}\n{program}"


def required_names(task: ProgramTask) -> list[str]:
    """The names that a program must define: those of the reference that the tests use."""
    defined = {
        node.name
        for node in ast.parse(task.reference).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return sorted(defined & _used(task))


def extract_program(response: str, names: list[str] | None = None) -> str:
    """The Python code of a response: cut at the first stop, then taken out of its code fences.

    If there are several fenced blocks, the last one that defines all the names counts, or else the
    first. A fence that is never closed extends to the end. Without fences the whole text is the
    program.
    """
    text = response.replace("\r\n", "\n")
    for stop in STOPS:
        text = text.partition(stop)[0]
    text = text.rpartition(BEGIN)[2]
    blocks = _fenced(text)
    if not blocks:
        return text.strip("\n")
    complete = [b for b in blocks if all(_defines(b, name) for name in names or ())]
    return (complete[-1] if complete else blocks[0]).strip("\n")


def _fenced(text: str) -> list[str]:
    """The fenced blocks of Python, in order."""
    fences = list(_FENCE.finditer(text))
    blocks = []
    for opening, closing in zip(fences[::2], [*fences[1::2], None], strict=False):
        if opening[1].lower() in _PYTHON:
            blocks.append(text[opening.end() : None if closing is None else closing.start()])
    return [block for block in blocks if block.strip()]


def _helpers(task: CompletionTask) -> str:
    """The code of a prompt besides the function: imports and helpers."""
    kept = [
        node
        for node in ast.parse(task.prompt + task.reference).body
        if not (isinstance(node, ast.FunctionDef) and node.name == task.entry_point)
    ]
    return "\n".join(ast.unparse(node) for node in kept)


def _defines(program: str, name: str) -> bool:
    return re.search(rf"^(?:def|class|async def)\s+{name}\b", program, re.MULTILINE) is not None


def _used(task: ProgramTask) -> set[str]:
    """All names in a task's tests and their setup."""
    tree = ast.parse("\n".join([task.setup, *task.tests]))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _imports(task: ProgramTask) -> list[str]:
    """The reference's imports that the tests rely on, such as `sys` for `sys.getsizeof`."""
    used, imports = _used(task), []
    for node in ast.parse(task.reference).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            if bound & used:
                imports.append(ast.unparse(node))
    return imports
