"""Benchmarks as prompts and responses: how a record is asked and answered, in training and in
evaluation alike.

The suites of `evaluation/suites` ask by these tasks too: without worked examples, a suite's prompt
is that of a training row token by token, with a chat template and without one. Three things differ
by nature. Presets with shots put worked examples before the question, which no training row has.
ARC is trained as its `paper` preset asks it, with choices listed and a letter for an answer, not as
`scored: texts` or `arc_generation` do. And HumanEval, of which nothing is trained on, has its
wording in its suite.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from remask.pipeline.benchmarks.records import (
    ChoiceQuestion,
    MathProblem,
    ProgramTask,
    WordProblem,
    read_arc,
    read_gsm8k,
    read_math,
    read_mbpp,
)

Benchmark = Literal["math", "gsm8k", "mbpp", "arc"]
Fields = dict[str, Any]

QUESTION = "{question}"
"""Stands in a template for what is asked."""
BEGIN, DONE = "[BEGIN]", "[DONE]"
"""Around a program of MBPP."""
_CALCULATOR = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True)
class Task:
    """How a benchmark is asked and answered."""

    chat_template: str
    """What the user says in a chat; `{question}` is what is asked."""
    plain_template: str
    """The prompt without a chat; the answer follows after a blank."""
    question: str
    """What is asked, over the fields of a record."""
    answer: str
    """A worked solution, over the same."""
    fields: Callable[[Any], Fields]
    """A record to its fields."""

    def ask(self, record: Any) -> str:
        """What is asked of a record."""
        return self.question.format(**self.fields(record))

    def solve(self, record: Any) -> str:
        """A record's worked solution."""
        return self.answer.format(**self.fields(record))

    def training_fields(self, record: Any, *, chat: bool) -> Fields:
        """A record's fields, with the `prompt` and `response` that a model is trained on."""
        template = self.chat_template if chat else self.plain_template
        answer = self.solve(record)
        return self.fields(record) | {
            "prompt": template.replace(QUESTION, self.ask(record)),
            "response": answer if chat else f" {answer}",
        }


def _math_problem(problem: MathProblem) -> Fields:
    return asdict(problem)


def _word_problem(problem: WordProblem) -> Fields:
    solution = _CALCULATOR.sub("", problem.solution)  # marks for a calculator: 48/2=<<48/2=24>>24
    return {**asdict(problem), "solution": solution}


def _program_task(task: ProgramTask) -> Fields:
    return {**asdict(task), "tests": "\n".join(task.tests)}


def _choice_question(question: ChoiceQuestion) -> Fields:
    pairs = zip(question.labels, question.texts, strict=True)
    return {**asdict(question), "choices": "\n".join(f"{label}. {text}" for label, text in pairs)}


MATH = Task(
    chat_template=f"{QUESTION}\n\nReason step by step, and put the final answer into \\boxed{{}}.",
    plain_template=f"Problem:\n{QUESTION}\n\nSolution:",
    question="{problem}",
    answer="{solution}",
    fields=_math_problem,
)
GSM8K = Task(
    chat_template=f"{QUESTION}\n\nReason step by step, and end with the final number after ####.",
    plain_template=f"Question: {QUESTION}\nAnswer:",
    question="{question}",
    answer="{solution}\n#### {answer}",
    fields=_word_problem,
)
MBPP = Task(
    chat_template=(
        f"Solve this task in Python: {QUESTION}\n\nWrite the program between {BEGIN} and {DONE}."
    ),
    plain_template=f"Task: {QUESTION}\nProgram:\n",
    question="{text}\nIt must pass these tests:\n{tests}",
    answer=f"{BEGIN}\n{{reference}}\n{DONE}",
    fields=_program_task,
)
ARC = Task(
    chat_template=f"{QUESTION}\n\nAnswer with the letter of the right choice alone.",
    plain_template=f"Question: {QUESTION}\nAnswer:",
    question="{question}\n{choices}",
    answer="{answer}",
    fields=_choice_question,
)
TASKS: dict[Benchmark, Task] = {"math": MATH, "gsm8k": GSM8K, "mbpp": MBPP, "arc": ARC}


@functools.lru_cache(maxsize=2)
def read_fields(
    benchmark: Benchmark,
    data: str,
    split: str,
    *,
    chat: bool,
    subjects: tuple[str, ...],
    split_seed: int,
) -> list[Fields]:
    """All records of a benchmark that may be trained on, as fields for templates; the benchmark's
    own prompt and answer are the fields `prompt` and `response`.

    Args:
        benchmark: Which.
        data: A .jsonl file, or the name of a data set on the hub.
        split: Of the data set on the hub. MBPP's is the paper's training part, whatever this says.
        chat: Ask as in a chat, or as a text to continue.
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
    return [TASKS[benchmark].training_fields(record, chat=chat) for record in records]


def _of_subjects(problems: list[Any], subjects: tuple[str, ...], data: str) -> list[Any]:
    there = {p.subject for p in problems}
    unknown = sorted(set(subjects) - there)
    if unknown:
        raise ValueError(f"{data} has no subjects {unknown}; it has {sorted(there)}")
    return [p for p in problems if not subjects or p.subject in subjects]
