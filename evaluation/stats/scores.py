"""Scores of counts and means, each with the interval that fits it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from remask.evaluation.decode.paths import Bools, Ints, Paths
from remask.evaluation.stats.intervals import bootstrap_ratio, wilson
from remask.evaluation.suite import Score, Unit


def share(metric: str, hits: Bools, **facts: Any) -> Score:
    """The share of samples that are so, [B]."""
    low, high = wilson(int(hits.sum()), len(hits))
    return Score(
        metric=metric,
        value=float(hits.mean()) if len(hits) else 0.0,
        low=low,
        high=high,
        count=len(hits),
        **facts,
    )


def ratio(metric: str, parts: Ints, wholes: Ints, **facts: Any) -> Score:
    """A share of parts, cells say, with an interval that knows they come by boards; [B] each."""
    part, whole = int(parts.sum()), int(wholes.sum())
    low, high = bootstrap_ratio(parts, wholes) if 0 < part < whole else wilson(part, whole)
    return Score(
        metric=metric, value=part / max(whole, 1), low=low, high=high, count=whole, **facts
    )


def mean(metric: str, values: NDArray, unit: Unit = "number", **facts: Any) -> Score:
    """The mean over samples, [B]."""
    low, high = bootstrap_ratio(values, np.ones(len(values)))
    return Score(
        metric=metric,
        value=float(np.mean(values)),
        low=low,
        high=high,
        count=len(values),
        unit=unit,
        **facts,
    )


def what_revision_did(paths: Paths) -> list[Score]:
    """Per sample, in cells: mended and spoilt, re-masked, revealed, re-masked more than once."""
    was_right, is_right = paths.start == paths.solution, paths.final == paths.solution
    remasks, reveals = paths.remasks().sum(0), paths.reveals().sum(0)  # [B, N]
    return [
        mean("fixed", (~was_right & is_right).sum(-1)),
        mean("broken", (was_right & ~is_right).sum(-1), better="lower"),
        mean("remasked", remasks.sum(-1), better="neither"),
        mean("revealed", reveals.sum(-1), better="neither"),
        mean("oscillating", (remasks > 1).sum(-1), better="lower"),
    ]
