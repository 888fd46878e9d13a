"""Checkers: whether an answer is right, and which right answer is nearest to a draft.

A prompt may have several right answers. A model that is taught one of them alone learns to undo the
others; a checker tells a rollout which answer a decode was about to give.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remask.pipeline.format.examples import Example
from remask.pipeline.moves import Ints


class Checker(Protocol):
    """Knows the right answers to the examples of a source.

    What it says may depend on nothing but the source's fields and the arguments. An exception
    counts as "not right" and is counted in the manifest.
    """

    def check_machine(self) -> None:
        """Raise ValueError if this machine lacks something that the checker needs."""
        ...

    def is_right(self, example: Example, answer: Ints) -> bool:
        """Is a finished row right? `answer`, [N], has no MASK and the example's fixed tokens."""
        ...

    def nearest(self, example: Example, state: Ints, end: Ints) -> Ints:
        """The known right answer, [N], with the fewest changes to the visible tokens of a state.

        Ties go to the answer nearest to the decode's end, then to the given one, then to the first
        in the source's order.

        Args:
            example: The example; its target is a right answer.
            state: Tokens of the state that is looked at, [N], with MASKs.
            end: Tokens at the end of the decode, [N].
        """
        ...


@dataclass(frozen=True)
class ListedAnswers:
    """The checker of a task whose right answers can all be listed."""

    list_answers: Callable[[Example], Ints]
    """All right answers to an example, [A, N], in the source's order."""
    mask_id: int

    def check_machine(self) -> None:
        """Nothing is needed."""

    def is_right(self, example: Example, answer: Ints) -> bool:
        return bool((self.list_answers(example) == answer).all(1).any())

    def nearest(self, example: Example, state: Ints, end: Ints) -> Ints:
        answers = self.list_answers(example)
        is_change = (answers != state) & (state != self.mask_id)  # [A, N]
        is_other = (answers != example.target).any(1)
        from_end = (answers != end).sum(1)
        order = (is_change.sum(1) * (state.size + 1) + from_end) * 2 + is_other
        return answers[np.argmin(order)]  # the first of equals
