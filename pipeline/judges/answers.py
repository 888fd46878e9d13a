"""Final answers, extracted from a response and compared as mathematics.

A format says where an answer is searched for, in this order; the last match counts:

- `math` (MATH, MATH-500, Minerva): `\\boxed{...}`, then the text after "the answer is".
- `gsm8k`: the number after `####`, then `\\boxed{...}`, then the number after "the answer is", then
  the last number of the response.

A response without any of these has no answer and counts as wrong.
"""

import re
from collections.abc import Callable
from typing import Literal

from remask.pipeline.benchmarks.math import last_boxed
from remask.pipeline.judges.equivalence import AnswerChecker

AnswerFormat = Literal["math", "gsm8k"]

MAX_CHARACTERS = 1000
"""Limit on the length of an answer; the longest in MATH has 159. Longer ones count as wrong."""
MAX_DEPTH = 20
"""Limit on the nesting of braces and brackets."""

_ANSWER_IS = re.compile(r"answer(?: is|\s?:)[ \t]*:?[ \t]*(?=\S)", re.IGNORECASE)
_END_OF_ANSWER = re.compile(r"\.(?=\s|$)|\s*I hope it is correct")
_NUMBER = re.compile(
    r"(?<![\w.])-?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:/\d+)?"
)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")


def is_right(response: str, gold: str, answer_format: AnswerFormat, checker: AnswerChecker) -> bool:
    """Whether the final answer of a response equals the right one."""
    answer = extract_answer(response, answer_format)
    return answer is not None and same_answer(gold, answer, checker)


def same_answer(gold: str, answer: str, checker: AnswerChecker) -> bool:
    """Whether two answers in LaTeX or plain text are mathematically equal.

    False for an answer that is too long, nested too deeply or unbalanced, and for a comparison that
    exceeds its time limit.
    """
    gold, answer = clean(gold), clean(answer)
    if not gold or not _is_sound(answer):
        return False
    return checker.equal(gold, answer)


def extract_answer(response: str, answer_format: AnswerFormat) -> str | None:
    """The final answer of a response, if it has one; in time linear in the response's length."""
    for find in _FINDERS[answer_format]:
        answer = find(response)
        if answer is not None and clean(answer):
            return clean(answer)
    return None


def clean(answer: str) -> str:
    """The answer without surrounding white space, dollar signs and full stop."""
    answer = answer.strip()
    for mark in ("$$", "$"):
        if len(answer) > 2 * len(mark) and answer.startswith(mark) and answer.endswith(mark):
            answer = answer[len(mark) : -len(mark)].strip()
    if answer.startswith(("\\(", "\\[")) and answer.endswith(("\\)", "\\]")):
        answer = answer[2:-2].strip()
    return answer.removesuffix(".").rstrip()


def after_answer_is(text: str) -> str | None:
    """The text after the last "answer is" or "answer:", to the end of its sentence or line."""
    start = None
    for match in _ANSWER_IS.finditer(text):
        start = match.end()
    if start is None:
        return None
    line = text[start : start + 2 * MAX_CHARACTERS].split("\n", 1)[0]
    return _END_OF_ANSWER.split(line, maxsplit=1)[0].strip("*_ ")


def last_number(text: str) -> str | None:
    """The last number, without currency sign and thousands separators."""
    numbers = _NUMBER.findall(text)
    return _plain_number(numbers[-1]) if numbers else None


def _number_after_answer_is(text: str) -> str | None:
    number = _NUMBER.search(after_answer_is(text) or "")
    return number and _plain_number(number[0])


def _after_hashes(text: str) -> str | None:
    marked = _HASHES.findall(text)
    number = _NUMBER.search(marked[-1]) if marked else None
    return number and _plain_number(number[0])


def _plain_number(number: str) -> str:
    return re.sub("[$€£,]", "", number)


_FINDERS: dict[AnswerFormat, tuple[Callable[[str], str | None], ...]] = {
    "math": (last_boxed, after_answer_is),
    "gsm8k": (_after_hashes, last_boxed, _number_after_answer_is, last_number),
}


def _is_sound(answer: str) -> bool:
    """Whether an answer is short enough, not nested too deeply, and every brace is closed."""
    if not 0 < len(answer) <= MAX_CHARACTERS:
        return False
    depth = deepest = braces = 0
    for mark in re.findall(r"\\\\|\\[{}]|[][(){}]", answer):
        if mark in "{}":
            braces += 1 if mark == "{" else -1
            if braces < 0:
                return False
        depth += 1 if mark[-1] in "([{" else -1 if mark[-1] in ")]}" else 0
        deepest = max(deepest, depth)
    return braces == 0 and deepest <= MAX_DEPTH
