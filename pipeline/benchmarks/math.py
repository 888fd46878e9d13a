"""MATH and MATH-500: worked solutions whose final answer stands in a box."""

import re
from dataclasses import asdict, dataclass

from remask.pipeline.benchmarks.reading import JsonRow, read_records, text_field
from remask.pipeline.benchmarks.task import QUESTION, Task

_BOX_PARTS = re.compile(r"\\[{}\\]|\\(?:boxed|fbox)\s*\{|[{}]")
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s+([^\s{}$]+)")


@dataclass(frozen=True, kw_only=True)
class MathProblem:
    """A problem of MATH or MATH-500."""

    problem_id: str
    problem: str
    solution: str
    answer: str
    """The final answer in LaTeX; empty if the data has none."""
    subject: str
    level: int | None
    """Difficulty from 1 to 5; None if the data does not state it."""


MATH = Task(
    chat_template=f"{QUESTION}\n\nReason step by step, and put the final answer into \\boxed{{}}.",
    plain_template=f"Problem:\n{QUESTION}\n\nSolution:",
    question="{problem}",
    answer="{solution}",
    fields=asdict,
)


def read_math(data: str, split: str = "test") -> list[MathProblem]:
    """MATH or MATH-500, such as `EleutherAI/hendrycks_math` or `HuggingFaceH4/MATH-500`."""
    return read_records(data, split, _problem)


def read_subjects(data: str, split: str, subjects: tuple[str, ...]) -> list[MathProblem]:
    """The problems of some subjects; of all subjects if none is named."""
    problems = read_math(data, split)
    known = {problem.subject for problem in problems}
    unknown = sorted(set(subjects) - known)
    if unknown:
        raise ValueError(f"{data} has no subjects {unknown}; it has {sorted(known)}")
    return [problem for problem in problems if problem.subject in (subjects or known)]


def last_boxed(text: str) -> str | None:
    """The content of the last complete `\\boxed{...}`; of nested boxes, of the outer one."""
    opened: list[int | None] = []  # start of a box's content; None for other braces
    span = None
    for part in _BOX_PARTS.finditer(text):
        if part[0] == "}":
            start = opened.pop() if opened else None
            span = span if start is None else (start, part.start())
        elif part[0] == "{":
            opened.append(None)
        elif "box" in part[0]:
            opened.append(part.end())
    if span is not None:
        return text[slice(*span)]
    bare = _BARE_BOX.findall(text)
    return bare[-1] if bare else None


def _problem(row: JsonRow, number: int) -> MathProblem:
    level = str(row["level"]).removeprefix("Level ")
    solution = text_field(row, "solution")
    return MathProblem(
        problem_id=str(row.get("unique_id", number)),
        problem=text_field(row, "problem"),
        solution=solution,
        answer=str(row["answer"]) if "answer" in row else last_boxed(solution) or "",
        subject=str(row["subject"] if "subject" in row else row["type"]),
        level=int(level) if level.isdecimal() else None,  # MATH has a few "Level ?"
    )
