"""GSM8K: word problems whose answer is a number."""

import re
from dataclasses import asdict, dataclass

from remask.pipeline.benchmarks.reading import JsonRow, read_records, text_field
from remask.pipeline.benchmarks.task import QUESTION, Fields, Task

_CALCULATOR = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, kw_only=True)
class WordProblem:
    """A problem of GSM8K."""

    problem_id: str
    question: str
    solution: str
    answer: str
    """A number in digits, without separators."""


def _fields(problem: WordProblem) -> Fields:
    solution = _CALCULATOR.sub("", problem.solution)  # calculator marks: 48/2=<<48/2=24>>24
    return {**asdict(problem), "solution": solution}


GSM8K = Task(
    chat_template=f"{QUESTION}\n\nReason step by step, and end with the final number after ####.",
    plain_template=f"Question: {QUESTION}\nAnswer:",
    question="{question}",
    answer="{solution}\n#### {answer}",
    fields=_fields,
)


def read_gsm8k(data: str, split: str = "test") -> list[WordProblem]:
    """GSM8K, such as `openai/gsm8k`."""
    return read_records(data, split, _problem, config="main")


def _problem(row: JsonRow, number: int) -> WordProblem:
    solution, mark, answer = text_field(row, "answer").rpartition("####")
    if not mark or not answer.strip():
        raise ValueError("answer has no number after ####")
    return WordProblem(
        problem_id=str(number),
        question=text_field(row, "question"),
        solution=solution.strip(),
        answer=answer.strip().replace(",", ""),
    )
