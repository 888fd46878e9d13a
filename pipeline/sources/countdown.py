"""Countdown: reach a number by adding and subtracting digits, with every step written out.

The prompt is a sequence of digits and the number to reach. The response is the steps that reach it,
followed by END up to the end of the row:

    8342=7:  8+3=9;9-4=5;5+2=7 ...

The digits are used in order and only the signs are free, so solving a prompt takes look-ahead.
Every result is clamped to 0 .. 9. Most prompts have several solutions, and each step is easy to
check. With the signs given instead of the number to reach, each prompt has exactly one solution:

    8+3-4+2:  8+3=9;9-4=5;5+2=7 ...

A token is a character of `ALPHABET`; its id is its index.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from remask.models.ranges import Range, check_fields
from remask.pipeline.checkers import Checker, ListedAnswers
from remask.pipeline.format.examples import Example, Examples, Vocabulary, hash_share
from remask.pipeline.moves import Ints

MASK, END = "_", "."
ALPHABET = f"{MASK}{END}0123456789+-=;:"
LARGEST_RESULT = 9
MAX_DRAWS = 10_000
"""Prompts drawn in search of one that belongs to a split."""
FREE_PROMPT = re.compile(r"(\d+)=(\d):")


@dataclass(frozen=True, kw_only=True)
class CountdownSource:
    """Prompts with one of their solutions, which is editable.

    A prompt belongs to one split: `train`, `held_out`, or `test`, which the suite alone draws from.
    """

    kind: Literal["countdown"] = "countdown"
    train: Annotated[int, Range("[0, inf)")] = 100_000
    held_out: Annotated[int, Range("[0, inf)")] = 1_000
    numbers: tuple[int, int] = (5, 5)
    """Least and greatest number of digits in a prompt."""
    largest: Annotated[int, Range("[1, 9]")] = 4
    """Largest digit after the first one."""
    signs: Literal["free", "given"] = "free"
    """`free` gives the number to reach and asks for the signs; `given` gives the signs."""
    held_out_share: Annotated[float, Range("[0.01, 0.99]")] = 0.1
    """Share of all prompts that is held out of training: half of it is the split `held_out`, half
    the split `test`."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.train + self.held_out == 0:
            raise ValueError("train and held_out are both 0; at least one split needs rows")
        low, high = self.numbers
        if not 2 <= low <= high <= 9:
            raise ValueError(f"numbers must be 2 <= low <= high <= 9, got {low}, {high}")

    @property
    def length(self) -> int:
        """Tokens of every row: the longest prompt, the longest response, and one END."""
        num_digits = self.numbers[1]
        prompt = num_digits + 3 if self.signs == "free" else 2 * num_digits
        return prompt + (6 * (num_digits - 1) - 1) + 1

    def own_proposals(self) -> tuple[str, ...]:
        return ()

    def tokenizer_hash(self) -> str:
        return "characters"

    def data_hash(self) -> None:
        """None: the rows are generated."""

    def with_absolute_paths(self) -> "CountdownSource":
        return self

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(len(ALPHABET), ALPHABET.index(MASK))

    def checker(self) -> Checker:
        """Knows all solutions of a prompt."""
        return ListedAnswers(_list_answers, self.vocabulary().mask_id)

    def num_records(self) -> dict[str, int]:
        return {"train": self.train, "held_out": self.held_out}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Rows first .. first+count-1 of a split."""
        drawn = [self.draw(split, rng) for _ in range(count)]
        rows = [encode(prompt + response, self.length) for prompt, response in drawn]
        prompt_lengths = np.array([len(prompt) for prompt, _ in drawn], np.int32)
        return Examples(
            example_ids=[f"countdown-{split}-{first + i:09d}" for i in range(count)],
            target=np.stack([*rows, np.zeros(self.length, np.uint8)])[:count],
            editable=np.arange(self.length) >= prompt_lengths[:, None],
            lengths=np.full(count, self.length),
            prompt_lengths=prompt_lengths,
            vocabulary=self.vocabulary(),
        )

    def draw(self, split: str, rng: np.random.Generator) -> tuple[str, str]:
        """A prompt of a split and the response it was made from."""
        low, high = self._shares(split)
        for _ in range(MAX_DRAWS):
            count = int(rng.integers(self.numbers[0], self.numbers[1] + 1))
            steps = rng.integers(1, self.largest + 1, count - 1)
            digits = [int(rng.integers(0, LARGEST_RESULT + 1)), *steps.tolist()]
            signs = "".join("+-"[i] for i in rng.integers(0, 2, count - 1))
            response, target = work_out(digits, signs)
            prompt = f"{''.join(map(str, digits))}={target}:"
            if self.signs == "given":
                prompt = "".join(f"{a}{b}" for a, b in zip(digits, f"{signs}:", strict=True))
            if low <= hash_share(prompt.encode()) < high:
                return prompt, response
        raise ValueError(
            f"none of {MAX_DRAWS:,} drawn prompts belongs to {split} with held_out_share "
            f"{self.held_out_share}; change it, or raise numbers or largest"
        )

    def _shares(self, split: str) -> tuple[float, float]:
        """The hashes of a split's prompts, from the first to below the second."""
        half, whole = self.held_out_share / 2, self.held_out_share
        return {"test": (0.0, half), "held_out": (half, whole), "train": (whole, 1.0)}[split]


def work_out(digits: list[int], signs: str) -> tuple[str, int]:
    """The steps for digits with signs between them, and the number that they reach."""
    total, steps = digits[0], []
    for sign, digit in zip(signs, digits[1:], strict=True):
        result = min(max(total + (digit if sign == "+" else -digit), 0), LARGEST_RESULT)
        steps.append(f"{total}{sign}{digit}={result}")
        total = result
    return ";".join(steps), total


def is_solution(prompt: str, response: str) -> bool:
    """Is the response, without END at its end, a solution of the prompt?"""
    return response.rstrip(END) in solutions(prompt)


def solutions(prompt: str) -> Iterator[str]:
    """All responses that solve a prompt."""
    free = FREE_PROMPT.fullmatch(prompt)
    digits = [int(x) for x in (free[1] if free else prompt[::2])]
    choices = itertools.product("+-", repeat=len(digits) - 1) if free else [prompt[1:-1:2]]
    for signs in choices:
        response, reached = work_out(digits, "".join(signs))
        if free is None or reached == int(free[2]):
            yield response


def _list_answers(example: Example) -> Ints:
    """The rows of all solutions of an example's prompt, [A, N]."""
    return _solved_rows(decode(example.target[: example.prompt_length]), example.length)


@functools.lru_cache(maxsize=4096)
def _solved_rows(prompt: str, length: int) -> Ints:
    return np.stack([encode(prompt + response, length) for response in solutions(prompt)])


def encode(text: str, length: int) -> np.ndarray:
    """Token ids of a text, [length], padded with END."""
    if len(text) > length or not set(text) <= set(ALPHABET):
        raise ValueError(f"expected at most {length} characters of {ALPHABET!r}, got {text!r}")
    return np.array([ALPHABET.index(x) for x in text.ljust(length, END)], np.uint8)


def decode(ids: np.ndarray) -> str:
    return "".join(ALPHABET[i] for i in ids)
