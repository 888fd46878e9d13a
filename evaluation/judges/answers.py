"""Final answers: found in a response, and compared as mathematics.

Presets say where an answer is looked for, in this order, the last of its kind each time:

- `math` (MATH, MATH-500, Minerva): `\\boxed{...}`, then what follows "the answer is".
- `gsm8k`: what follows `####`, then `\\boxed{...}`, then the number after "the answer is", then the
  last number of all.

A response in which none is found has no answer, and is wrong.
"""

import re
from collections.abc import Callable
from typing import Literal

from remask.evaluation.judges.equivalence import Checker
from remask.pipeline.benchmarks.math import last_boxed

Preset = Literal["math", "gsm8k"]

MOST_CHARACTERS = 1000
"""Of an answer; the longest in MATH has 159. A longer one is wrong."""
MOST_DEPTH = 20
"""Of braces and brackets within each other."""

_ANSWER_IS = re.compile(r"answer(?: is|\s?:)[ \t]*:?[ \t]*(?=\S)", re.IGNORECASE)
_END_OF_ANSWER = re.compile(r"\.(?=\s|$)|\s*I hope it is correct")
_NUMBER = re.compile(
    r"(?<![\w.])-?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:/\d+)?"
)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")


def is_right(response: str, gold: str, preset: Preset, checker: Checker) -> bool:
    """Whether a response's final answer equals the right one."""
    answer = extract_answer(response, preset)
    return answer is not None and same_answer(gold, answer, checker)


def same_answer(gold: str, answer: str, checker: Checker) -> bool:
    """Whether two answers in LaTeX or plain text are the same mathematically.

    Anything too long, too deep or unbalanced is not, nor what cannot be decided in time.
    """
    gold, answer = clean(gold), clean(answer)
    if not gold or not _is_sound(answer):
        return False
    return checker.equal(gold, answer)


def extract_answer(response: str, preset: Preset) -> str | None:
    """The final answer of a response, none if there is none; in time linear in its length."""
    for find in _PRESETS[preset]:
        answer = find(response)
        if answer is not None and clean(answer):
            return clean(answer)
    return None


def clean(answer: str) -> str:
    """Without what surrounds an answer: blanks, dollar signs, a full stop."""
    answer = answer.strip()
    for mark in ("$$", "$"):
        if len(answer) > 2 * len(mark) and answer.startswith(mark) and answer.endswith(mark):
            answer = answer[len(mark) : -len(mark)].strip()
    if answer.startswith(("\\(", "\\[")) and answer.endswith(("\\)", "\\]")):
        answer = answer[2:-2].strip()
    return answer.removesuffix(".").rstrip()


def after_answer_is(text: str) -> str | None:
    """What follows the last "answer is" or "answer:", to the end of its sentence or line."""
    start = None
    for match in _ANSWER_IS.finditer(text):
        start = match.end()
    if start is None:
        return None
    line = text[start : start + 2 * MOST_CHARACTERS].split("\n", 1)[0]
    return _END_OF_ANSWER.split(line, maxsplit=1)[0].strip("*_ ")


def last_number(text: str) -> str | None:
    """The last number, without its currency and its commas."""
    numbers = _NUMBER.findall(text)
    return _plain_number(numbers[-1]) if numbers else None


def _number_after_answer_is(text: str) -> str | None:
    number = _NUMBER.search(after_answer_is(text) or "")
    return number and _plain_number(number[0])


def _after_hashes(text: str) -> str | None:
    found = _HASHES.findall(text)
    number = _NUMBER.search(found[-1]) if found else None
    return number and _plain_number(number[0])


def _plain_number(number: str) -> str:
    return re.sub("[$€£,]", "", number)


_PRESETS: dict[Preset, tuple[Callable[[str], str | None], ...]] = {
    "math": (last_boxed, after_answer_is),
    "gsm8k": (_after_hashes, last_boxed, _number_after_answer_is, last_number),
}


def _is_sound(answer: str) -> bool:
    """Short enough, not too deep, and every brace closed."""
    if not 0 < len(answer) <= MOST_CHARACTERS:
        return False
    depth = deepest = braces = 0
    for mark in re.findall(r"\\\\|\\[{}]|[][(){}]", answer):
        if mark in "{}":
            braces += 1 if mark == "{" else -1
            if braces < 0:
                return False
        depth += 1 if mark[-1] in "([{" else -1 if mark[-1] in ")]}" else 0
        deepest = max(deepest, depth)
    return braces == 0 and deepest <= MOST_DEPTH
