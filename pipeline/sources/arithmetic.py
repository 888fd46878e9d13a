"""Sums of several numbers, worked out step by step: a small text task of our own making.

The prompt is a sum, the response its steps with their results, and END up to the row's end:

    47+85-09:  047+85=132;132-09=123......

A token is a character of `ALPHABET`, at its index. Numbers are written with leading zeros, so that
a digit's place says what it counts.
"""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.rows import Examples, Vocabulary, hash_share

MASK, END = "_", "."
ALPHABET = f"{MASK}{END}0123456789+-=;:"


@dataclass(frozen=True, kw_only=True)
class ArithmeticSource:
    """Sums with their steps; the response is editable. No held-out sum is in training."""

    kind: Literal["arithmetic"] = "arithmetic"
    train: int = 100_000
    held_out: int = 1_000
    numbers: tuple[int, int] = (4, 4)
    """Fewest and most numbers in a sum."""
    digits: int = 2
    """Of every number, leading zeros among them; results have one more."""
    held_out_share: float = 0.1
    """Share of all sums that is kept from training."""

    def __post_init__(self) -> None:
        if self.train < 0 or self.held_out < 0 or self.train + self.held_out == 0:
            raise ValueError(f"need sums in some split, got {self.train} and {self.held_out}")
        low, high = self.numbers
        if not 2 <= low <= high <= 9:
            raise ValueError(f"numbers must be 2 <= low <= high <= 9, got {low}, {high}")
        if not 1 <= self.digits <= 6:
            raise ValueError(f"digits must be 1 to 6, got {self.digits}")
        if not 0.01 <= self.held_out_share <= 0.99:
            raise ValueError(f"held_out_share must lie in [0.01, 0.99], got {self.held_out_share}")

    @property
    def length(self) -> int:
        """Tokens of every row: what the longest sum of these sizes may need."""
        return row_length(self.numbers[1], self.digits)

    def tokenizer_hash(self) -> str:
        return "characters"

    def data_hash(self) -> None:
        """None: the sums are made."""

    def with_absolute_paths(self) -> "ArithmeticSource":
        return self

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(len(ALPHABET), ALPHABET.index(MASK))

    def num_records(self) -> dict[str, int]:
        return {"train": self.train, "held_out": self.held_out}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Sums of a split; a function of the arguments alone."""
        prompts = [self.draw(split, rng) for _ in range(count)]
        rows = [encode(prompt + solve(prompt), self.length) for prompt in prompts]
        target = np.stack([*rows, np.zeros(self.length, np.uint8)])[:count]
        prompt_lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        return Examples(
            example_ids=[f"sum-{split}-{first + i:09d}" for i in range(count)],
            target=target,
            editable=np.arange(self.length) >= prompt_lengths[:, None],
            lengths=np.full(count, self.length),
            prompt_lengths=prompt_lengths,
            vocabulary=self.vocabulary(),
        )

    def draw(self, split: str, rng: np.random.Generator) -> str:
        """A sum of a split, drawn until it belongs there, with its colon."""
        while True:
            numbers = int(rng.integers(self.numbers[0], self.numbers[1] + 1))
            prompt = random_sum(numbers, self.digits, rng)
            if (hash_share(prompt.encode()) < self.held_out_share) == (split == "held_out"):
                return prompt


def random_sum(numbers: int, digits: int, rng: np.random.Generator) -> str:
    """Numbers of so many digits, added or taken away, never below zero; with its colon."""
    drawn = rng.integers(0, 10**digits, numbers).tolist()
    minus = (rng.random(numbers) < 0.5).tolist()
    total, text = drawn[0], f"{drawn[0]:0{digits}d}"
    for number, wants_minus in zip(drawn[1:], minus[1:], strict=True):
        sign = "-" if wants_minus and number <= total else "+"
        total += number if sign == "+" else -number
        text += f"{sign}{number:0{digits}d}"
    return f"{text}:"


def solve(prompt: str) -> str:
    """The response to a sum: every step with its result."""
    first, *rest = re.findall(r"[+-]?\d+", prompt)
    total, width = int(first), len(first) + 1
    steps = []
    for term in rest:
        result = total + int(term)
        steps.append(f"{total:0{width}d}{term}={result:0{width}d}")
        total = result
    return ";".join(steps)


def answer(response: str) -> int | None:
    """The last result in a response, what follows END left out; none where there is no number."""
    number = response.split(END, 1)[0].rpartition("=")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def row_length(numbers: int, digits: int) -> int:
    """Tokens of the longest sum and its response, and one END."""
    longest = "+".join(["9" * digits] * numbers) + ":"
    return len(longest) + len(solve(longest)) + 1


def encode(text: str, length: int) -> np.ndarray:
    """Characters to token ids [length], END after them."""
    if len(text) > length or not set(text) <= set(ALPHABET):
        raise ValueError(f"expected at most {length} characters of {ALPHABET!r}, got {text!r}")
    return np.array([ALPHABET.index(x) for x in text.ljust(length, END)], np.uint8)


def decode(ids: np.ndarray) -> str:
    return "".join(ALPHABET[i] for i in ids)
