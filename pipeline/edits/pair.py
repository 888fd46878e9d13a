"""Edit pairs, and the protocol of whatever provides them."""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remask.pipeline.edits.images import Picture, Region, Size

WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class EditPair:
    """One edit: a source picture, an instruction, and the target picture."""

    pair_id: str
    kind: str
    """Kind of edit, such as `recolour`; empty if unknown."""
    instruction: str
    source: Picture
    target: Picture
    """The picture after the edit, of the source's size."""
    region: Region | None = None
    """Pixels that the edit may change; None if they are not marked."""

    @property
    def is_equal(self) -> bool:
        """Is this a no-op edit?"""
        return np.array_equal(self.source, self.target)


class EditPairs(Protocol):
    """Pairs by split and number. Implementations are frozen dataclasses, sections of a recipe."""

    @property
    def size(self) -> Size | None:
        """Height and width of all pictures; None if they differ."""
        ...

    def size_for(self, size: Size) -> Size:
        """Height and width that a picture of a given size is scaled and cropped to."""
        ...

    def num_pairs(self) -> dict[str, int]:
        """Number of pairs of each split, unreadable ones included."""
        ...

    def pair(self, split: str, number: int) -> EditPair:
        """A pair, the same on every call. Raises ImageError if its files cannot be used."""
        ...

    def words(self) -> tuple[str, ...]:
        """The vocabulary of the instructions: each word once, in a fixed order."""
        ...

    def data_hash(self) -> str | None:
        """Hash of the data that is read; None if pictures are generated."""
        ...

    def with_absolute_paths(self) -> "EditPairs":
        """The same pairs with absolute paths, since workers run in other folders."""
        ...


def split_words(text: str) -> list[str]:
    """The words of an instruction: lower case, without punctuation."""
    return WORD.findall(text.lower())


def check_number(split: str, number: int, num_pairs: dict[str, int]) -> None:
    """Raise ValueError unless a split has a pair of this number."""
    if not 0 <= number < num_pairs.get(split, 0):
        raise ValueError(f"there is no pair {number} in {split}; there are {num_pairs}")
