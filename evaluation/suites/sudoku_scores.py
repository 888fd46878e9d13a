"""Figures of the Sudoku suite: outcomes, error localisation, calibration of p(MASK). SPEC §7."""

import numpy as np
from numpy.typing import NDArray

from remask.evaluation.decode.paths import Bools, Paths, replays
from remask.evaluation.stats.intervals import bootstrap
from remask.evaluation.stats.scores import (
    AS_GIVEN,
    FORWARD_PASSES,
    REVISION_GLOSSARY,
    mean,
    ratio,
    revision_scores,
    share,
)
from remask.evaluation.suite import Score
from remask.pipeline.judges.nearest import outlook
from remask.pipeline.sources.sudoku_rules import conflict_cells, is_valid

CALIBRATION_BINS = 10
"""Number of bins of the calibration histogram over p(MASK)."""
MAX_SEARCHED = 20
"""Wrong cells up to which the nearest valid boards are searched; beyond, one board can take
seconds."""

GLOSSARY = {
    "exact": "boards equal to their solution in every cell",
    "valid": "boards that break no rule, whether or not they equal the solution",
    "replay": "share of the re-masked wrong cells that were later decoded to the same wrong digit",
    "conflicts": "cells per final board that break a rule",
    AS_GIVEN: "boards that equal their solution before any revision",
    "as_near": "boards that end as another valid board, no further from the given board",
    "ambiguous": "boards with another valid board at least as near as the solution",
    "ceiling": "share of boards that the best possible reviser would solve exactly",
    "first_remask_precision": "share of the cells re-masked in the first step that were wrong",
    "first_remask_recall": "share of the wrong cells that were re-masked in the first step",
    "mask_calibration_error": "mean gap between p(MASK) and the share of cells that are wrong",
    "wrong_share": "share of the cells with this p(MASK) that are wrong",
    **REVISION_GLOSSARY,
    **FORWARD_PASSES,
}


def sudoku_scores(boards: Paths, beliefs: NDArray[np.floating] | None) -> list[Score]:
    """All figures of a run.

    Args:
        boards: The decodes.
        beliefs: p(MASK) of the boards as given, [B, N], if the model was asked for it.
    """
    return [
        *_outcomes(boards),
        *revision_scores(boards),
        *_localisation(boards, beliefs),
        *_by_forward_passes(boards),
        *_by_wrong_cells(boards),
    ]


def _outcomes(boards: Paths) -> list[Score]:
    """The paper's four metrics, valid boards other than the solution, and the best reachable."""
    final = boards.final
    exact, valid = boards.exact(final), is_valid(final)
    rejected, replayed = replays(boards)
    distance = (final != boards.start).sum(-1)
    wrong = (boards.solution != boards.start).sum(-1)
    scores = [
        share("exact", exact),
        share("valid", valid),
        ratio("replay", replayed.sum(-1), rejected.sum(-1), better="lower"),
        mean("conflicts", conflict_cells(final).sum(-1), better="lower"),
        share(AS_GIVEN, boards.exact(boards.start), better="neither"),
        share("as_near", valid & ~exact & (distance <= wrong), better="neither"),
        mean("forward_passes", boards.forward_passes, better="lower"),
    ]
    if wrong.max() <= MAX_SEARCHED:
        pairs = zip(boards.solution, boards.start, strict=True)
        chances = np.array([outlook(*pair).chance for pair in pairs])
        scores += [
            share("ambiguous", chances < 1, better="neither"),
            mean("ceiling", chances, unit="share", better="neither"),
        ]
    return scores


def _localisation(boards: Paths, beliefs: NDArray[np.floating] | None) -> list[Score]:
    """Does the first step re-mask the wrong cells, and is p(MASK) calibrated?"""
    if beliefs is None or len(boards.states) < 2:
        return []
    wrong = boards.start != boards.solution
    first = boards.remasks()[0]
    hits = (first & wrong).sum(-1)
    scores = [
        ratio("first_remask_precision", hits, first.sum(-1)),
        ratio("first_remask_recall", hits, wrong.sum(-1)),
    ]
    return [*scores, *_calibration(beliefs, wrong)]


def _calibration(beliefs: NDArray[np.floating], wrong: Bools) -> list[Score]:
    """The expected calibration error of p(MASK), and the share of wrong cells in each bin."""
    bins = np.minimum((beliefs * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    in_bin = bins[..., None] == np.arange(CALIBRATION_BINS)  # [B, N, bins]
    num_cells, sum_beliefs, num_wrong = (
        (in_bin * x[..., None]).sum(1) for x in (np.ones_like(beliefs), beliefs, wrong)
    )  # [B, bins] each
    points = [
        ratio(
            "wrong_share",
            num_wrong[:, i],
            num_cells[:, i],
            better="neither",
            by="p(MASK)",
            at=float(sum_beliefs[:, i].sum() / num_cells[:, i].sum()),
        )
        for i in np.flatnonzero(num_cells.sum(0))
    ]

    def error(sums: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.abs(sums).sum(-1) / wrong.size

    gaps = num_wrong - sum_beliefs
    low, high = bootstrap(gaps, error)
    total = Score(
        metric="mask_calibration_error",
        value=float(error(gaps.sum(0))),
        low=low,
        high=high,
        count=wrong.size,
        better="lower",
    )
    return [total, *points]


def _by_forward_passes(boards: Paths) -> list[Score]:
    """The share of boards that are right after each forward pass; a board with a MASK is not."""
    by = "forward passes"
    return [
        score
        for passes, state in enumerate(boards.states)
        for score in (
            share("exact", boards.exact(state), by=by, at=passes),
            share("valid", is_valid(state), by=by, at=passes),
        )
    ]


def _by_wrong_cells(boards: Paths) -> list[Score]:
    wrong = (boards.start != boards.solution).sum(-1)
    exact, valid = boards.exact(boards.final), is_valid(boards.final)
    return [
        share(name, right[wrong == count], by="wrong cells", at=int(count))
        for count in np.unique(wrong)
        for name, right in (("exact", exact), ("valid", valid))
    ]
