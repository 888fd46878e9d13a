"""Benchmarks as prompts and responses: what is asked, and what a model is to learn to answer.

A template is over the fields that a benchmark's records have here. Evaluation without examples in
the prompt asks by the same templates.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.benchmarks import (
    ChoiceQuestion,
    ProgramTask,
    WordProblem,
    read_arc,
    read_gsm8k,
    read_math,
    read_mbpp,
)

Benchmark = Literal["math", "gsm8k", "mbpp", "arc"]
Fields = dict[str, Any]

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_BOXED = "Please reason step by step, and put your final answer within \\boxed{{}}."


@dataclass(frozen=True)
class Task:
    """How a benchmark is asked and answered."""

    prompt: str
    response: str
    fields: Callable[[Any], Fields]
    """A record to the fields of the templates."""


def _word_problem(problem: WordProblem) -> Fields:
    solution = _CALCULATOR.sub("", problem.solution)  # marks for a calculator: 48/2=<<48/2=24>>24
    return {**asdict(problem), "solution": solution}


def _program_task(task: ProgramTask) -> Fields:
    return {**asdict(task), "tests": "\n".join(task.tests)}


def _choice_question(question: ChoiceQuestion) -> Fields:
    pairs = zip(question.labels, question.texts, strict=True)
    return {**asdict(question), "choices": "\n".join(f"{label}. {text}" for label, text in pairs)}


TASKS: dict[str, Task] = {
    "math": Task(f"{{problem}}\n{_BOXED}", "{solution}", asdict),
    "gsm8k": Task(
        f"{{question}}\n{_BOXED}", "{solution}\nThe answer is \\boxed{{{answer}}}.", _word_problem
    ),
    "mbpp": Task(
        "You are an expert Python programmer, and here is your task: {text} Your code should pass "
        "these tests:\n\n{tests}\n",
        "[BEGIN]\n{reference}\n[DONE]",
        _program_task,
    ),
    "arc": Task(
        "{question}\n{choices}\nAnswer with the letter of the right choice.",
        "{answer}",
        _choice_question,
    ),
}


@functools.lru_cache(maxsize=2)
def read_fields(
    benchmark: Benchmark, data: str, split: str, *, subjects: tuple[str, ...], split_seed: int
) -> list[Fields]:
    """All records of a benchmark that may be trained on, as fields for its templates.

    Args:
        benchmark: Which.
        data: A .jsonl file, or the name of a data set on the hub.
        split: Of the data set on the hub. MBPP's is the paper's training part, whatever this says.
        subjects: Of MATH, those to take; all when empty.
        split_seed: Of MBPP's division, as its suite has it.
    """
    match benchmark:
        case "math":
            records = _of_subjects(read_math(data, split), subjects, data)
        case "gsm8k":
            records = read_gsm8k(data, split)
        case "mbpp":
            records = read_mbpp(data, "train", seed=split_seed)
        case "arc":
            records = read_arc(data, split)
    return [TASKS[benchmark].fields(record) for record in records]


def _of_subjects(problems: list[Any], subjects: tuple[str, ...], data: str) -> list[Any]:
    there = {p.subject for p in problems}
    unknown = sorted(set(subjects) - there)
    if unknown:
        raise ValueError(f"{data} has no subjects {unknown}; it has {sorted(there)}")
    return [p for p in problems if not subjects or p.subject in subjects]
