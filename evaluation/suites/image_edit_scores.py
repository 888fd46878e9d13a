"""Predictions of the image-edit suite as a table, and the figures made from it. SPEC §7."""

import dataclasses
import math
from typing import Any

import numpy as np
import pyarrow as pa

from remask.evaluation.decode.paths import Bools, Paths, stack
from remask.evaluation.judges.image_metrics import EditMeasures
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

MEASURES = dataclasses.fields(EditMeasures)
BACKGROUND = ("outside_mae", "outside_psnr", "outside_ssim")
IDEAL = tuple(f"ideal_{name}" for name in BACKGROUND)
"""The background figures of the target itself. They are not perfect: the picture of a cell reaches
into its neighbours, so even the best edit changes some of the background."""
PREDICTIONS = pa.schema(
    [
        ("sample_id", pa.string()),
        ("number", pa.int64()),
        *((name, pa.string()) for name in ("edit", "instruction")),
        *((name, pa.binary()) for name in ("solution", "start", "states")),
        ("forward_passes", pa.int32()),
        ("edit_mask", pa.binary()),
        *((f.name, pa.int64() if f.type is int else pa.float64()) for f in MEASURES),
        *((name, pa.float64()) for name in IDEAL),
        ("vqa", pa.float64()),
    ]
)

GLOSSARY = {
    "precision": "share of the changed pixels that lie where something should change",
    "coverage": "share of the pixels that should change that were changed",
    "outside_mae": "mean absolute error of what should stay, in levels of 0 to 255",
    "outside_psnr": "peak signal-to-noise ratio of what should stay, in dB, at most 60",
    "outside_ssim": "structural similarity of what should stay",
    "ideal_outside_mae": "mean absolute error of what should stay, if the edit were the target",
    "ideal_outside_psnr": "peak signal-to-noise ratio of what should stay, if the edit were the "
    "target",
    "ideal_outside_ssim": "structural similarity of what should stay, if the edit were the target",
    "agreement": "share of the pixels that should change that agree with the target",
    "success": "edits that agree with the target well enough, or rightly change nothing",
    AS_GIVEN: "sources that need no edit",
    "exact": "edits equal to their target in every cell",
    "vqa_score": "probability of yes when a model is asked whether the edit was made",
    "mask_precision": "share of the cells re-masked at some step that should change",
    "mask_recall": "share of the cells that should change that were re-masked at some step",
    "edited_cells": "share of the cells that should change that agree with the target",
    "kept_cells": "share of the cells that should stay that are unchanged",
    "no_edit": "number of samples in which nothing should change",
    "left_out": "number of samples that cannot be used; evaluation.json gives the reasons",
    **REVISION_GLOSSARY,
    **FORWARD_PASSES,
}


def image_edit_scores(
    predictions: pa.Table, paths: Paths, *, success_at: float, num_samples: int
) -> list[Score]:
    """All figures of a run.

    Args:
        predictions: At least one row of the schema `PREDICTIONS`.
        paths: The decodes of the same rows.
        success_at: Share of the asked pixels that must agree with the target.
        num_samples: Samples of the suite, those without a row included.
    """
    return [
        *_outcomes(predictions, paths, success_at, num_samples),
        *revision_scores(paths),
        *_localisation(paths, stack(predictions["edit_mask"], np.uint8) > 0),
        *_by_steps(paths),
    ]


def _outcomes(
    predictions: pa.Table, paths: Paths, success_at: float, num_samples: int
) -> list[Score]:
    """The paper's figures, and whether the edit was made."""
    measures = {f.name: predictions[f.name].to_numpy() for f in MEASURES}
    is_no_edit = np.isnan(measures["agreement"])
    agrees = np.nan_to_num(measures["agreement"]) >= success_at
    success = np.where(is_no_edit, measures["changed"] == 0, agrees)
    kinds = np.array(predictions["edit"].to_pylist())
    scores = [
        _ratio("precision", measures["changed_in_zone"], measures["changed"]),
        _ratio("coverage", measures["changed_in_region"], measures["region"]),
        _mean("outside_mae", measures["outside_mae"], better="lower"),
        _mean("outside_psnr", measures["outside_psnr"]),
        _mean("outside_ssim", measures["outside_ssim"]),
        *(_mean(x, predictions[x].to_numpy(), better="neither") for x in IDEAL),
        share("success", success),
        share(AS_GIVEN, is_no_edit, better="neither"),
        _mean("agreement", measures["agreement"], unit="share"),
        share("exact", paths.exact(paths.final)),
        *(share(f"success_{k}", success[kinds == k]) for k in sorted({*kinds} - {""})),
        mean("forward_passes", paths.forward_passes, better="lower"),
        mean("left_out", np.array([num_samples - len(predictions)]), better="lower"),
        mean("no_edit", np.array([is_no_edit.sum()]), better="neither"),
    ]
    if predictions["vqa"].null_count == 0:
        scores.append(mean("vqa_score", predictions["vqa"].to_numpy(), unit="share"))
    return scores


def _localisation(paths: Paths, edit_mask: Bools) -> list[Score]:
    """Are the re-masked cells those that should change? For canvases that start without MASKs."""
    if (paths.states[0] == 0).any():
        return []
    differs = paths.start != paths.solution
    hits = (edit_mask & differs).sum(-1)
    return [
        _ratio("mask_precision", hits, edit_mask.sum(-1)),
        _ratio("mask_recall", hits, differs.sum(-1)),
    ]


def _by_steps(paths: Paths) -> list[Score]:
    """Cells that should change and agree with the target, and cells that should stay and did."""
    differs = paths.start != paths.solution
    return [
        _ratio(name, (state == paths.solution) & where, where, by="steps", at=step)
        for step, state in enumerate(paths.states)
        for name, where in (("edited_cells", differs), ("kept_cells", paths.is_own & ~differs))
    ]


def _ratio(metric: str, parts: Any, wholes: Any, **facts: Any) -> Score:
    """A share of pixels or cells over all samples; NaN if there are none."""
    parts, wholes = (x.sum(-1) if x.ndim > 1 else x for x in (parts, wholes))
    return ratio(metric, parts, wholes, **facts) if wholes.sum() else _unknown(metric, **facts)


def _mean(metric: str, values: Any, **facts: Any) -> Score:
    """The mean over the samples that have the figure; NaN if none has."""
    known = values[np.isfinite(values)]
    return mean(metric, known, **facts) if len(known) else _unknown(metric, **facts)


def _unknown(metric: str, **facts: Any) -> Score:
    return Score(metric=metric, value=math.nan, low=math.nan, high=math.nan, count=0, **facts)
