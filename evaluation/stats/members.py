"""One figure from all checkpoints of one name, such as three seeds."""

import math
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class ScoreEstimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float
    members: int = 1
    """Number of checkpoints that the figure is a mean of."""


def combine(scores: pl.DataFrame) -> ScoreEstimate | None:
    """The mean over members with its Student interval; a single member keeps its own interval.

    Args:
        scores: Rows of one figure, one per member. Members without a value are ignored.

    Returns:
        None if no member has a value.
    """
    known = scores.filter(pl.col("value").is_finite())
    if known.is_empty():
        return None
    first = known.row(0, named=True)
    values = known["value"].to_list()
    if len(values) == 1:
        return ScoreEstimate(first["value"], _number(first["low"]), _number(first["high"]))
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    reach = student_t(len(values) - 1) * math.sqrt(variance / len(values))
    low, high = mean - reach, mean + reach
    if first["unit"] == "share":
        low, high = max(low, 0.0), min(high, 1.0)
    return ScoreEstimate(mean, low, high, len(values))


def student_t(freedom: int) -> float:
    """The t such that Student's distribution has 95 % of its mass in [-t, t]."""
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _mass_within(middle, freedom) < 0.95 else (low, middle)
    return high


def _mass_within(t: float, freedom: int) -> float:
    """P(|T| < t), which is a finite sum over powers of a cosine for whole degrees of freedom."""
    angle = math.atan2(t, math.sqrt(freedom))
    is_odd = freedom % 2
    term, total = math.cos(angle) if is_odd else 1.0, 0.0
    for power in range(is_odd, freedom - 1, 2):
        if power > 1:
            term *= (power - 1) / power * math.cos(angle) ** 2
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total


def _number(value: float | None) -> float:
    return math.nan if value is None else value
