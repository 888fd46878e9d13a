"""Checkers of text benchmarks: final answers as mathematics, programs by their tests.

A response is judged as its suite judges it, except that stops of prompts without a chat, such as
"Problem:", do not end it. There may be countless right responses: besides the decode's own end the
given one is the only one known. Time limits decide few verdicts, but those may differ between
machines.
"""

import atexit
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from remask.models.text.prompts import TextTokenizer
from remask.pipeline.benchmarks.training import Benchmark
from remask.pipeline.format.examples import Example
from remask.pipeline.judges.answers import AnswerFormat, is_right
from remask.pipeline.judges.equivalence import AnswerChecker
from remask.pipeline.judges.programs import score_program
from remask.pipeline.moves import Ints
from remask.pipeline.sandbox.run import is_available

CHECKED: tuple[Benchmark, ...] = ("math", "gsm8k", "mbpp")
"""Benchmarks with a checker. ARC has none: each question has one right letter."""


@dataclass(frozen=True)
class BenchmarkChecker:
    """Judges responses to the records of a benchmark."""

    benchmark: Benchmark
    record: Callable[[str], Any]
    """The record that an example, by its id, was made from."""
    tokenizer: Callable[[], TextTokenizer]

    def check_machine(self) -> None:
        if self.benchmark == "mbpp":
            reason = is_available()
            if reason is not None:
                raise ValueError(f"targets: nearest_right runs generated code: {reason}")
            return
        try:
            _answer_checker()
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    def is_right(self, example: Example, answer: Ints) -> bool:
        """Is the response right, and does it end as properly as the given one?

        After its first end token a right row has only end tokens, so that no rest of a draft is
        taken for right.
        """
        tokenizer = self.tokenizer()
        is_end = np.isin(answer[example.prompt_length :], tokenizer.end_ids)
        given_ends = bool(np.isin(example.target[-1], tokenizer.end_ids))
        if (np.diff(is_end.astype(np.int8)) < 0).any() or bool(is_end[-1]) != given_ends:
            return False
        response = tokenizer.decode_answer(answer[example.prompt_length :].tolist())
        record = self.record(example.example_id)
        if self.benchmark == "mbpp":
            return score_program(record, response).status == "passed"
        return is_right(response, record.answer, _FORMATS[self.benchmark], _answer_checker())

    def nearest(self, example: Example, state: Ints, end: Ints) -> Ints:
        return example.target


_FORMATS: dict[Benchmark, AnswerFormat] = {"math": "math", "gsm8k": "gsm8k"}


@functools.cache
def _answer_checker() -> AnswerChecker:
    """One for this process, since its worker takes a second to start."""
    checker = AnswerChecker()
    atexit.register(checker.close)
    return checker
