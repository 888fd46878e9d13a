"""What a source of clean sequences must provide.

A source is a frozen dataclass whose fields are the `source` section of a recipe. Fields that hold a
path or URI are marked `PLACE` (`pipeline/runtime/places.py`), so that moving a file does not change
the key of the examples made from it.
"""

from typing import Protocol, Self

import numpy as np

from remask.pipeline.checkers import Checker
from remask.pipeline.format.examples import Examples, Vocabulary


class Source(Protocol):
    """Clean sequences with editable positions, by split and number."""

    @property
    def kind(self) -> str:
        """The value of `source.kind` in a recipe; a field of type `Literal` with one choice."""
        ...

    def own_proposals(self) -> tuple[str, ...]:
        """Kinds of proposal that this source supports besides those that fit every source.

        They are names in `PROPOSALS` (`pipeline/proposal_kinds.py`). A source that supports the
        kind `source` must fill in `Examples.starts`.
        """
        ...

    def with_absolute_paths(self) -> Self:
        """The same source with absolute paths, since workers run in other folders."""
        ...

    def tokenizer_hash(self) -> str:
        """Identifies the mapping from text or pixels to ids: a change changes every key."""
        ...

    def data_hash(self) -> str | None:
        """Hash of the data that the source reads; None if it generates its examples."""
        ...

    def vocabulary(self) -> Vocabulary:
        """Number of ids, the MASK id, and the ids that are never proposed."""
        ...

    def checker(self) -> Checker | None:
        """Tells right answers from wrong ones and finds the nearest right one; None if the only
        known right answer is the given one. Must be cheap to make: recipes ask for it."""
        ...

    def num_records(self) -> dict[str, int]:
        """Records of each split, those that `examples` will leave out included."""
        ...

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Examples made from the records first .. first+count-1 of a split.

        The result may depend on nothing but the source's fields and these arguments, so that it is
        the same on every machine and after every retry. A record that cannot be used is left out
        and counted in `Examples.num_skipped`.
        """
        ...
