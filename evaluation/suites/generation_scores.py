"""Predictions of generation suites as a table, and the figures made from it."""

import numpy as np
import pyarrow as pa

from remask.evaluation.stats.scores import AS_FIRST_WRITTEN, FORWARD_PASSES, mean, share
from remask.evaluation.suite import Score

COUNTS = ("forward_passes", "remasked", "revealed", "replaced", "restored", "left_masked")
"""Columns that are fields of `decode/generation.py`'s `Answer`."""
SCHEMA = pa.schema(
    {
        "sample_id": pa.string(),
        "subject": pa.string(),
        "level": pa.int32(),
        "prompt_sha256": pa.string(),
        "prompt_tokens": pa.int32(),
        "response": pa.string(),
        "answer": pa.string(),
        "verdict": pa.string(),
        "is_right": pa.bool_(),
        "has_ended": pa.bool_(),
        "answer_tokens": pa.int32(),
        "forward_passes": pa.int32(),
        "remasked": pa.int32(),
        "revealed": pa.int32(),
        "replaced": pa.int32(),
        "restored": pa.int32(),
        "left_masked": pa.int32(),
        "passes": pa.list_(pa.int32()),
        "right_after": pa.list_(pa.bool_()),
        "right_as_written": pa.bool_(),
        "path": pa.binary(),
    }
)
"""One row per question. `right_after` says whether the answer was complete and right after each of
the numbers of forward passes in `passes`, `right_as_written` whether it would be right had every
position kept its first token. `path` is a packed `TextPath`."""

GLOSSARY = {
    AS_FIRST_WRITTEN: "responses that would be right had every position kept its first token",
    "answered": "responses in which an answer was found, right or wrong",
    "ended": "responses that the model itself ended within their length",
    "answer_tokens": "tokens per response before its end",
    "remasked": "number of times per response that a visible token became MASK",
    "revealed": "number of times per response that MASK became a token",
    "replaced": "positions per response whose final token is not the one first revealed there",
    "restored": "positions per response that were re-masked and end with the same token",
    "left_masked": "MASKs per response left to a closing pass, which reveals them all at once",
    **FORWARD_PASSES,
}


def generation_scores(metric: str, predictions: pa.Table) -> list[Score]:
    """All figures of a run.

    Args:
        metric: Name of the share of right answers.
        predictions: A table of the schema `SCHEMA`.
    """
    right = predictions["is_right"].to_numpy().astype(bool)
    as_written = predictions["right_as_written"].to_numpy().astype(bool)
    has_ended = predictions["has_ended"].to_numpy().astype(bool)
    counts = {name: predictions[name].to_numpy() for name in (*COUNTS, "answer_tokens")}
    answered = np.array([x.is_valid for x in predictions["answer"]])
    scores = [
        share(metric, right),
        *_by_subject(metric, right, predictions["subject"].to_pylist()),
        share(AS_FIRST_WRITTEN, as_written, better="neither"),
        share("answered", answered, better="neither"),
        share("ended", has_ended, better="neither"),
        mean("forward_passes", counts["forward_passes"], better="lower"),
    ]
    for name in ("answer_tokens", "remasked", "revealed", "replaced", "restored"):
        scores.append(mean(name, counts[name], better="neither"))
    scores.append(mean("left_masked", counts["left_masked"], better="lower"))
    return [
        *scores,
        *_by_level(metric, right, predictions["level"].to_pylist()),
        *_by_passes(metric, predictions, int(counts["forward_passes"].max())),
    ]


def slug(name: str) -> str:
    """A subject as part of a metric's name: `Counting & Probability` is counting_probability."""
    words = "".join(x if x.isalnum() else " " for x in name.lower()).split()
    return "_".join(words)


def _by_subject(metric: str, right: np.ndarray, subjects: list[str | None]) -> list[Score]:
    names = sorted({subject for subject in subjects if subject is not None})
    return [
        share(f"{metric}_{slug(name)}", right[[subject == name for subject in subjects]])
        for name in names
    ]


def _by_level(metric: str, right: np.ndarray, levels: list[int | None]) -> list[Score]:
    known = sorted({level for level in levels if level is not None})
    return [
        share(metric, right[[level == other for other in levels]], by="level", at=float(level))
        for level in known
    ]


def _by_passes(metric: str, predictions: pa.Table, max_passes: int) -> list[Score]:
    """The share of answers that are right after each of `passes`; an answer with a MASK is not."""
    passes = predictions["passes"][0].as_py()
    right_after = np.array(predictions["right_after"].to_pylist(), dtype=bool)  # [B, P]
    return [
        share(metric, right_after[:, i], by="forward passes", at=float(number))
        for i, number in enumerate(passes)
        if i == 0 or passes[i - 1] < max_passes
    ]
