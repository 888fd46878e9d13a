"""Rules: the paths that positions take to their targets, as data. SPEC §3.

A rule lists what a position shows, segment by segment: MASK, a wrong token drawn from the proposal,
or the target itself. A new rule is one more entry of `RULES`; everything else follows from it.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer]


class Show(IntEnum):
    """What a segment shows."""

    NOTHING = 0
    """The segment is empty: the path is shorter."""
    MASK = 1
    TARGET = 2
    WRONG = 3


M, X, W = Show.MASK, Show.TARGET, Show.WRONG

RULES: Mapping[str, tuple[Show, ...]] = MappingProxyType(
    {
        "wrong": (W, M, X),
        "relapse": (M, W, M, X),
        "relapse2": (W, M, W, M, X),
        "doubt": (X, M, X),
        "mask": (M, X),
    }
)
"""Each rule's path, the oldest segment first. A path's wrong tokens are drawn independently."""

KEEP, RECORDED = "keep", "recorded"
"""In counts: positions that show their target throughout, and paths that no rule has, as recorded
decodes do."""


def num_segments(rules: Sequence[str]) -> int:
    """S, the segments that the longest path of some rules has."""
    return max(len(RULES[name]) for name in rules)


def path_table(rules: Sequence[str]) -> Ints:
    """What each rule shows in each segment but the last, right-aligned, [len(rules), S-1]."""
    size = num_segments(rules)
    paths = [(Show.NOTHING,) * (size - len(RULES[name])) + RULES[name][:-1] for name in rules]
    return np.array(paths, np.uint8)


def count_rules(tokens: Ints, ends: Ints, target: Ints, mask_id: int) -> dict[str, int]:
    """How many moving positions follow each rule, read back from their segments.

    Args:
        tokens: What each segment but the last shows, [S-1, P].
        ends: The steps at which those segments end, [S-1, P]; 0 for leading empty ones.
        target: [P].
        mask_id: Id of the mask token.
    """
    size = num_segments(tuple(RULES)) - 1
    codes = np.zeros(target.size, np.uint8)  # a path as one number, two bits per segment
    for plane, end in zip(tokens[-size:], ends[-size:], strict=True):
        is_right, is_masked = plane == target, plane == mask_id
        shown = np.uint8(W) - is_right.view(np.uint8) - 2 * is_masked.view(np.uint8)
        codes = 4 * codes + shown * (end > 0)
    if len(ends) > size:
        codes[(ends[:-size] > 0).any(0)] = 0  # longer than any rule's
    counts = {name: int(np.count_nonzero(codes == _code(path))) for name, path in RULES.items()}
    return counts | {RECORDED: target.size - sum(counts.values())}


def _code(path: tuple[Show, ...]) -> int:
    return sum(int(show) * 4**i for i, show in enumerate(reversed(path[:-1])))


def count_wrong(tokens: Ints, ends: Ints, target: Ints, mask_id: int) -> int:
    """Segments of these positions that show a wrong token. Arguments as for `count_rules`."""
    return int(np.count_nonzero((tokens != mask_id) & (tokens != target) & (ends > 0)))
