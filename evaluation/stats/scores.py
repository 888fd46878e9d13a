"""Scores of counts and means, each with the interval that fits it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from remask.evaluation.decode.paths import Bools, Ints, Paths
from remask.evaluation.stats.intervals import bootstrap_ratio, wilson
from remask.evaluation.suite import Score, Unit

FORWARD_PASSES = {"forward_passes": "forward passes of the model per sample"}
AS_GIVEN, AS_FIRST_WRITTEN = "as_given", "as_first_written"
"""Metrics of samples without revision: as they were given, or with the token that each position
showed first."""
REVISION_GLOSSARY = {
    "fixed": "cells per sample that were wrong at the start and right at the end",
    "broken": "cells per sample that were right at the start and wrong at the end",
    "remasked": "number of times per sample that a visible token became MASK",
    "revealed": "number of times per sample that MASK became a token",
    "oscillating": "cells per sample that were re-masked more than once",
}
"""The metrics of `revision_scores`."""


def share(metric: str, hits: Bools, **facts: Any) -> Score:
    """The share of samples for which `hits` is true, [B], with Wilson's interval."""
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
    """Σ parts / Σ wholes, such as a share of cells, [B] each.

    The interval resamples whole samples, because the cells of one board are not independent.
    """
    part, whole = int(parts.sum()), int(wholes.sum())
    low, high = bootstrap_ratio(parts, wholes) if 0 < part < whole else wilson(part, whole)
    return Score(
        metric=metric, value=part / max(whole, 1), low=low, high=high, count=whole, **facts
    )


def mean(metric: str, values: NDArray, unit: Unit = "number", **facts: Any) -> Score:
    """The mean over samples, [B], with a bootstrap interval."""
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


def revision_scores(paths: Paths) -> list[Score]:
    """Cells per sample that revision fixed, broke, re-masked, revealed or re-masked repeatedly."""
    was_right, is_right = paths.start == paths.solution, paths.final == paths.solution
    remasks, reveals = paths.remasks().sum(0), paths.reveals().sum(0)  # [B, N]
    return [
        mean("fixed", (~was_right & is_right).sum(-1)),
        mean("broken", (was_right & ~is_right).sum(-1), better="lower"),
        mean("remasked", remasks.sum(-1), better="neither"),
        mean("revealed", reveals.sum(-1), better="neither"),
        mean("oscillating", (remasks > 1).sum(-1), better="lower"),
    ]
