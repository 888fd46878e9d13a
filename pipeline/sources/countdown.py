"""Reach a number by adding and taking away others, with every step written out: a small text task.

The prompt is some digits and what they are to come to, the response the steps there, and END up to
the row's end:

    8342=7:  8+3=9;9-4=5;5+2=7 ...

The digits are used in their order; only the signs are free, so one has to look ahead. Nothing goes
above 9 or below 0. Most prompts have several solutions, each step of which is easily checked. With
the signs given instead of what they come to, each prompt has one solution, a step at a time:

    8+3-4+2:  8+3=9;9-4=5;5+2=7 ...

A token is a character of `ALPHABET`, at its index.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from remask.pipeline.format.rows import Examples, Vocabulary, hash_share

MASK, END = "_", "."
ALPHABET = f"{MASK}{END}0123456789+-=;:"
TOP = 9
MOST_DRAWS = 10_000
"""Prompts drawn in search of one of a split."""
FREE = re.compile(r"(\d+)=(\d):")


@dataclass(frozen=True, kw_only=True)
class CountdownSource:
    """Digits, a target and a way to it; the response is editable. Held-out prompts are in no
    training row."""

    kind: Literal["countdown"] = "countdown"
    train: int = 100_000
    held_out: int = 1_000
    numbers: tuple[int, int] = (5, 5)
    """Fewest and most digits of a prompt."""
    largest: int = 4
    """Of the digits after the first."""
    signs: Literal["free", "given"] = "free"
    """Are the signs to be found, for a number that is given, or given themselves?"""
    held_out_share: float = 0.1
    """Share of all prompts that is kept from training."""

    def __post_init__(self) -> None:
        if self.train < 0 or self.held_out < 0 or self.train + self.held_out == 0:
            raise ValueError(f"need rows in some split, got {self.train} and {self.held_out}")
        low, high = self.numbers
        if not 2 <= low <= high <= 9:
            raise ValueError(f"numbers must be 2 <= low <= high <= 9, got {low}, {high}")
        if not 1 <= self.largest <= TOP:
            raise ValueError(f"largest must be 1 to {TOP}, got {self.largest}")
        if not 0.01 <= self.held_out_share <= 0.99:
            raise ValueError(f"held_out_share must lie in [0.01, 0.99], got {self.held_out_share}")

    @property
    def length(self) -> int:
        """Tokens of every row: the longest prompt and response, and one END."""
        most = self.numbers[1]
        prompt = most + 3 if self.signs == "free" else 2 * most
        return prompt + (6 * (most - 1) - 1) + 1

    def tokenizer_hash(self) -> str:
        return "characters"

    def data_hash(self) -> None:
        """None: the rows are made."""

    def with_absolute_paths(self) -> "CountdownSource":
        return self

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(len(ALPHABET), ALPHABET.index(MASK))

    def num_records(self) -> dict[str, int]:
        return {"train": self.train, "held_out": self.held_out}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Rows of a split; a function of the arguments alone."""
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
        for _ in range(MOST_DRAWS):
            count = int(rng.integers(self.numbers[0], self.numbers[1] + 1))
            steps = rng.integers(1, self.largest + 1, count - 1)
            digits = [int(rng.integers(0, TOP + 1)), *steps.tolist()]
            signs = "".join("+-"[i] for i in rng.integers(0, 2, count - 1))
            response, target = work_out(digits, signs)
            prompt = f"{''.join(map(str, digits))}={target}:"
            if self.signs == "given":
                prompt = "".join(f"{a}{b}" for a, b in zip(digits, f"{signs}:", strict=True))
            if (hash_share(prompt.encode()) < self.held_out_share) == (split == "held_out"):
                return prompt, response
        raise ValueError(
            f"no {split} prompt is found in {MOST_DRAWS:,} drawn: held_out_share "
            f"{self.held_out_share} leaves none of so few; change it, or numbers and largest"
        )


def work_out(digits: list[int], signs: str) -> tuple[str, int]:
    """The steps that signs between digits give, and what they come to."""
    total, steps = digits[0], []
    for sign, digit in zip(signs, digits[1:], strict=True):
        result = min(max(total + (digit if sign == "+" else -digit), 0), TOP)
        steps.append(f"{total}{sign}{digit}={result}")
        total = result
    return ";".join(steps), total


def is_solution(prompt: str, response: str) -> bool:
    """Is a response one of the prompt's solutions, and then ends?"""
    return response.rstrip(END) in solutions(prompt)


def solutions(prompt: str) -> Iterator[str]:
    """All responses that solve a prompt."""
    asked = FREE.fullmatch(prompt)
    digits = [int(x) for x in (asked[1] if asked else prompt[::2])]
    ways = itertools.product("+-", repeat=len(digits) - 1) if asked else [prompt[1:-1:2]]
    for signs in ways:
        response, reached = work_out(digits, "".join(signs))
        if asked is None or reached == int(asked[2]):
            yield response


def encode(text: str, length: int) -> np.ndarray:
    """Characters to token ids [length], END after them."""
    if len(text) > length or not set(text) <= set(ALPHABET):
        raise ValueError(f"expected at most {length} characters of {ALPHABET!r}, got {text!r}")
    return np.array([ALPHABET.index(x) for x in text.ljust(length, END)], np.uint8)


def decode(ids: np.ndarray) -> str:
    return "".join(ALPHABET[i] for i in ids)
