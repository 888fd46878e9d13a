"""What an image edit is, wherever it comes from."""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remask.pipeline.edits.images import Picture, Region, Size

WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class EditPair:
    """One edit: of these pixels, by these words, to those pixels."""

    pair_id: str
    kind: str
    """What is done, such as `recolour`; empty where that is not known."""
    instruction: str
    source: Picture
    target: Picture
    """As large as the source."""
    region: Region | None = None
    """Where the edit belongs, if somebody has marked it."""

    @property
    def is_equal(self) -> bool:
        """Is nothing to be done?"""
        return np.array_equal(self.source, self.target)


class EditPairs(Protocol):
    """Pairs by split and number. Implementations are frozen dataclasses, named in recipes."""

    @property
    def size(self) -> Size | None:
        """Height and width of all pictures, if they have one."""
        ...

    def size_for(self, size: Size) -> Size:
        """Height and width that a picture of some size is brought to."""
        ...

    def num_pairs(self) -> dict[str, int]:
        """Of each split, the unreadable ones included."""
        ...

    def pair(self, split: str, number: int) -> EditPair:
        """One pair, the same whoever asks; ImageError where its files cannot be used."""
        ...

    def words(self) -> tuple[str, ...]:
        """All words that instructions may have, each once, in an order of their own."""
        ...

    def data_hash(self) -> str | None:
        """Of what is read; none when pictures are made."""
        ...

    def with_absolute_paths(self) -> "EditPairs": ...


def split_words(text: str) -> list[str]:
    """An instruction's words: lower case, without punctuation."""
    return WORD.findall(text.lower())


def check_numbers(split: str, number: int, num_pairs: dict[str, int]) -> None:
    if not 0 <= number < num_pairs.get(split, 0):
        raise ValueError(f"there is no pair {number} in {split}; there are {num_pairs}")
