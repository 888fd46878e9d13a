"""Text benchmarks as typed records, from a local JSONL file or a data set on the hub.

MATH and MATH-500, GSM8K, MBPP, HumanEval and ARC-Challenge. A file is told from a hub name by its
`.jsonl` or `.jsonl.gz`.
"""

import ast
import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from remask.pipeline.format.rows import hash_share

TRAIN_SHARE = 0.3
"""Of MBPP, for training; the paper tests on the other 70 %."""

_BOX_PARTS = re.compile(r"\\[{}\\]|\\(?:boxed|fbox)\s*\{|[{}]")
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s+([^\s{}$]+)")


@dataclass(frozen=True, kw_only=True)
class MathProblem:
    """A problem of MATH or MATH-500."""

    problem_id: str
    problem: str
    solution: str
    answer: str
    """In LaTeX; empty where the data has none."""
    subject: str
    level: int | None
    """1 to 5; none where the data does not know."""


@dataclass(frozen=True, kw_only=True)
class WordProblem:
    """A problem of GSM8K."""

    problem_id: str
    question: str
    solution: str
    answer: str
    """A number in digits."""


@dataclass(frozen=True, kw_only=True)
class ProgramTask:
    """A task of MBPP."""

    task_id: int
    text: str
    reference: str
    """A program that passes."""
    setup: str
    """Statements before the tests."""
    tests: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CompletionTask:
    """A task of HumanEval: the rest of a function."""

    task_id: str
    prompt: str
    """Imports, perhaps helpers, then a signature with its docstring."""
    entry_point: str
    """The function's name."""
    reference: str
    """The rest, as it passes."""
    test: str
    """A program that defines `check(candidate)`."""


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion:
    """A question of ARC-Challenge."""

    question_id: str
    question: str
    labels: tuple[str, ...]
    texts: tuple[str, ...]
    answer: str
    """One of the labels."""


def read_math(data: str, split: str = "test") -> list[MathProblem]:
    """MATH or MATH-500, such as `EleutherAI/hendrycks_math` or `HuggingFaceH4/MATH-500`."""
    return _read(data, split, _math_problem)


def read_gsm8k(data: str, split: str = "test") -> list[WordProblem]:
    """GSM8K, such as `openai/gsm8k`."""
    return _read(data, split, _word_problem, config="main")


def read_mbpp(
    data: str, part: Literal["train", "test", "all"] = "test", *, seed: int = 0
) -> list[ProgramTask]:
    """MBPP, such as `google-research-datasets/mbpp`, by the paper's 30 % and 70 %.

    A task's part depends on the seed and its number alone, never on the others or their order.
    """
    tasks = _read(data, "train+test+validation+prompt", _program_task, config="full")
    found = [t for t in tasks if part in ("all", mbpp_part(t.task_id, seed))]
    if not found:
        raise ValueError(f"{data}: none of its {len(tasks)} tasks is in part {part!r}")
    return found


def mbpp_part(task_id: int, seed: int) -> Literal["train", "test"]:
    """Where a task belongs."""
    is_train = hash_share(f"mbpp-{seed}-{task_id}".encode()) < TRAIN_SHARE
    return "train" if is_train else "test"


def read_humaneval(data: str, split: str = "test") -> list[CompletionTask]:
    """HumanEval, such as `openai/openai_humaneval`."""
    return _read(data, split, _completion_task)


def read_arc(data: str, split: str = "test") -> list[ChoiceQuestion]:
    """ARC-Challenge, such as `allenai/ai2_arc`."""
    return _read(data, split, _choice_question, config="ARC-Challenge")


def last_boxed(text: str) -> str | None:
    """What the last complete `\\boxed{...}` holds, the outer one of two within each other."""
    opened: list[int | None] = []  # where a box's content begins; none for other braces
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


def _math_problem(row: dict[str, Any], number: int) -> MathProblem:
    level = str(row["level"]).removeprefix("Level ")
    solution = _text(row, "solution")
    return MathProblem(
        problem_id=str(row.get("unique_id", number)),
        problem=_text(row, "problem"),
        solution=solution,
        answer=str(row["answer"]) if "answer" in row else last_boxed(solution) or "",
        subject=str(row["subject"] if "subject" in row else row["type"]),
        level=int(level) if level.isdecimal() else None,  # MATH has a few "Level ?"
    )


def _word_problem(row: dict[str, Any], number: int) -> WordProblem:
    solution, mark, answer = _text(row, "answer").rpartition("####")
    if not mark or not answer.strip():
        raise ValueError("answer has no number after ####")
    return WordProblem(
        problem_id=str(number),
        question=_text(row, "question"),
        solution=solution.strip(),
        answer=answer.strip().replace(",", ""),
    )


def _program_task(row: dict[str, Any], number: int) -> ProgramTask:
    tests = row["test_list"]
    if not (isinstance(tests, list) and tests and all(isinstance(t, str) for t in tests)):
        raise ValueError("test_list must be a list of at least one test")
    setup = [str(row.get("test_setup_code") or ""), *row.get("test_imports", [])]
    return ProgramTask(
        task_id=int(row["task_id"]),
        text=_text(row, "text" if "text" in row else "prompt"),  # the sanitized set's name
        reference=_unix(_text(row, "code")),
        setup=_unix("\n".join(line for line in setup if line)),
        tests=tuple(_unix(t) for t in tests),
    )


def _completion_task(row: dict[str, Any], number: int) -> CompletionTask:
    task = CompletionTask(
        task_id=str(row["task_id"]),
        prompt=_unix(_text(row, "prompt")),
        entry_point=_text(row, "entry_point"),
        reference=_unix(_text(row, "canonical_solution")),
        test=_unix(_text(row, "test")),
    )
    try:
        parts = [ast.parse(task.prompt + task.reference), ast.parse(task.test)]
    except SyntaxError as error:
        raise ValueError(f"it is no Python: {error}") from error
    for tree, name in zip(parts, (task.entry_point, "check"), strict=True):
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            raise ValueError(f"nothing defines the function {name}")
    return task


def _choice_question(row: dict[str, Any], number: int) -> ChoiceQuestion:
    labels, texts = (tuple(map(str, row["choices"][name])) for name in ("label", "text"))
    answer = str(row["answerKey"])
    if len(labels) != len(texts) or len(set(labels)) != len(labels) or not labels:
        raise ValueError(f"choices do not match: labels {labels}, {len(texts)} texts")
    if answer not in labels:
        raise ValueError(f"answerKey {answer!r} is none of {labels}")
    return ChoiceQuestion(
        question_id=str(row.get("id", number)),
        question=_text(row, "question"),
        labels=labels,
        texts=texts,
        answer=answer,
    )


def _text(row: dict[str, Any], name: str) -> str:
    if not isinstance(row[name], str) or not row[name].strip():
        raise ValueError(f"{name} must be a text that is not empty, got {row[name]!r}")
    return row[name]


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


R = TypeVar("R")


def _read(
    data: str, split: str, make: Callable[[dict[str, Any], int], R], config: str | None = None
) -> list[R]:
    """All rows, each made into a record; an error names the file and the row, from 1."""
    is_file = data.endswith((".jsonl", ".jsonl.gz"))
    found = []
    for number, row in enumerate(
        _lines(data) if is_file else load_from_hub(data, split, config), 1
    ):
        try:
            found.append(make(row, number))
        except KeyError as error:
            raise ValueError(
                f"{data}: row {number} has no field {error}; it has {sorted(row)}"
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{data}: row {number}: {error}") from error
    if not found:
        raise ValueError(f"{data} holds no rows")
    return found


def _lines(path: str) -> Iterator[dict[str, Any]]:
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}")
    open_text = gzip.open if path.endswith(".gz") else open
    try:
        with open_text(path, "rt", encoding="utf-8") as file:
            lines = file.readlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: row {number} is no JSON ({error})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}: row {number} is no JSON object")
        yield row


def load_from_hub(name: str, split: str, config: str | None = None) -> Any:
    """A split of a data set on the hub; of a copy without that config, of all that it has."""
    import datasets  # slow to import

    def load(config: str | None) -> Any:
        return datasets.load_dataset(name, config, split=split)

    try:
        try:
            return load(config)
        except ValueError:
            if config is not None:
                return load(None)  # a copy without that config
            names = datasets.get_dataset_config_names(name)  # MATH has one for each subject
            if len(names) < 2:
                raise
            return datasets.concatenate_datasets([load(one) for one in names])
    except Exception as error:  # the hub fails in many ways, of several libraries' own
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"data {name!r} cannot be loaded from the hub: {reason}; or pass the path of a local "
            ".jsonl file"
        ) from error
