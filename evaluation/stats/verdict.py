"""A run beside its rivals: is it better, and how is that said in a sentence?"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from remask.evaluation.stats.members import ScoreEstimate
from remask.evaluation.stats.tables import readable
from remask.evaluation.suite import Outcome

MAX_SAID = 3
"""Limit on the rivals that the sentence names."""

Role = Literal["before", "other", "told", "revised", "answer"]
"""Samples without revision; a run without it; one that is told what is wrong; one that revises;
the one that the question is about."""
Verdict = Literal["yes", "no", "unclear"]
Fragment = tuple[str, bool]
"""A part of a sentence, and whether it is emphasised."""


@dataclass(frozen=True)
class Bar:
    """A figure with its name, as the picture shows it."""

    label: str
    role: Role
    estimate: ScoreEstimate | None
    text: str = ""
    interval: str = ""
    quoted: float = math.nan
    """The published figure, as printed; NaN if there is none."""

    @property
    def is_rival(self) -> bool:
        return self.role in ("before", "other") and self.estimate is not None


def judge(answer: Bar, rivals: Sequence[Bar], better: str) -> Verdict | None:
    """Whether the interval of a run lies beyond those of all rivals, or short of one of them.

    Returns:
        None if there is nothing to compare with.
    """
    if not rivals or better == "neither":
        return None
    own = _upwards(answer, better)
    others = [_upwards(rival, better) for rival in rivals]
    if all(own[0] > high for _, high in others):
        return "yes"
    return "no" if any(own[1] < low for low, _ in others) else "unclear"


def say(
    answer: Bar,
    rivals: Sequence[Bar],
    better: str,
    *,
    ceiling: str,
    count: int,
    metric: str,
    outcome: Outcome | None,
) -> Iterator[Fragment]:
    """The comparison in a sentence or two.

    Args:
        answer: The run that revises.
        rivals: What it is compared with.
        better: Whether a higher or a lower figure is better.
        ceiling: The best figure that a reviser can reach; empty if it is unknown.
        count: Number of samples.
        metric: Name of the figure.
        outcome: How the suite speaks of the figure. Defaults to the metric's name.
    """
    yield f"With {answer.label}, ", False
    if outcome is None:
        yield f"{readable(metric)} is ", False
    yield answer.text, True
    if outcome is not None:
        yield f" of {count:,} {outcome.samples} {outcome.success}", False
    before = [(x, x.label) for x in rivals if x.role == "before"]
    others = [x for x in rivals if x.role == "other"]
    named = [(x, f"with {x.label}") for x in others]
    if len(others) > MAX_SAID:
        best = max(others, key=lambda x: sum(_upwards(x, better)))
        named = [(best, f"at best without it ({best.label})")]
    for i, (rival, words) in enumerate([*before, *named]):
        yield ("; " if i == 0 else ", "), False
        yield rival.text, True
        yield f" {words}", False
    yield ".", False
    if ceiling:
        yield " No reviser can be expected to exceed ", False
        yield ceiling, True
        yield ".", False


def _upwards(bar: Bar, better: str) -> tuple[float, float]:
    """The ends of an interval such that more is better; the value itself where it has none."""
    estimate = bar.estimate or ScoreEstimate(math.nan, math.nan, math.nan)
    low, high = (x if math.isfinite(x) else estimate.value for x in (estimate.low, estimate.high))
    return (low, high) if better == "higher" else (-high, -low)
