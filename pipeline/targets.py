"""Targets of decodes: the given ones or, by a checker, the nearest right answers.

By a checker, a decode that ends right is its own target. The target of any other decode is the
known right answer that keeps most of the state looked at (`Checker.nearest`).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from remask.pipeline.checkers import Checker
from remask.pipeline.format.examples import Examples
from remask.pipeline.moves import Bools, Ints

Value = TypeVar("Value")


@dataclass(frozen=True)
class Ends:
    """How the decodes of some examples end."""

    tokens: Ints
    """[B, N]."""
    is_right: Bools
    """Are they right, [B]? Without a checker only the given target is."""
    is_unchecked: Bools
    """Has the checker failed, [B]? Such an end counts as not right."""


def check_ends(checker: Checker | None, examples: Examples, tokens: Ints) -> Ends:
    """Check how decodes end; `tokens` is [B, N]."""
    num_rows = len(tokens)
    if checker is None:
        return Ends(tokens, (tokens == examples.target).all(1), np.zeros(num_rows, np.bool_))
    is_right, is_unchecked = np.zeros((2, num_rows), np.bool_)
    for row in range(num_rows):
        example = examples.example(row)
        verdict = _guarded(checker.is_right, example, tokens[row, : example.length])
        is_right[row], is_unchecked[row] = bool(verdict), verdict is None
    return Ends(tokens, is_right, is_unchecked)


def find_targets(
    checker: Checker | None, examples: Examples, states: Ints, ends: Ends
) -> tuple[Ints, Bools]:
    """The targets of decodes that are looked at in some states.

    Args:
        checker: Knows the right answers; None takes the given targets.
        examples: What was decoded.
        states: The states looked at, [B, N].
        ends: How the decodes end.

    Returns:
        The targets, [B, N], and whether the checker failed, [B]; then the given target is kept.
    """
    is_unchecked = np.zeros(len(states), np.bool_)
    if checker is None:
        return examples.target, is_unchecked
    targets = np.where(ends.is_right[:, None], ends.tokens, examples.target)
    for row in np.flatnonzero(~ends.is_right).tolist():
        example = examples.example(row)
        kept = slice(0, example.length)
        nearest = _guarded(checker.nearest, example, states[row, kept], ends.tokens[row, kept])
        is_unchecked[row] = nearest is None
        if nearest is not None:
            targets[row, kept] = np.where(example.editable, nearest, example.target)
    return targets, is_unchecked


def _guarded(check: Callable[..., Value], *arguments: object) -> Value | None:
    """What a checker says; None if it fails, which must not cost the other rows of a shard."""
    try:
        return check(*arguments)
    except Exception as error:
        message = f"a checker failed: {error!r}; such decodes count as not right"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None
