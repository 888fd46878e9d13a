"""What runs are called: by the author of the recipe, in the rows of its tables."""

from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl

from remask.evaluation.recipe import HeadlineConfig, TableConfig

RunName = tuple[str, str, str]
"""Suite, checkpoint and decoder, as the recipe names them."""


def run_labels(
    scores: pl.DataFrame, sections: Sequence[TableConfig | HeadlineConfig] = ()
) -> dict[RunName, str]:
    """The label of every run, unique within its suite.

    Args:
        scores: A table of the schema `SCORES`.
        sections: Tables and a headline, the first of which that has a row for a run names it. A run
            without one is named after what tells it from the suite's other runs.
    """
    given: dict[RunName, str] = {}
    for section in sections:
        for row in section.rows:
            if row.checkpoint is not None and row.decoder is not None:
                given.setdefault((section.suite, row.checkpoint, row.decoder), row.label)
    names = scores.select("suite", "checkpoint", "decoder").unique(maintain_order=True)
    by_suite: dict[str, list[RunName]] = {}
    for suite, checkpoint, decoder in names.iter_rows():
        by_suite.setdefault(suite, []).append((suite, checkpoint, decoder))
    labels: dict[RunName, str] = {}
    for runs in by_suite.values():
        labels |= _distinct({run: given.get(run) or _own_name(run, runs) for run in runs})
    return labels


def label_of(labels: Mapping[RunName, str], run: RunName) -> str:
    """The label of a run, or its checkpoint and decoder if it has no scores."""
    return labels.get(run) or f"{run[1]}, {run[2]}"


def _own_name(run: RunName, runs: Sequence[RunName]) -> str:
    """The checkpoint, unless the decoders differ too."""
    _, checkpoint, decoder = run
    if len({other for _, _, other in runs}) == 1:
        return checkpoint
    return decoder if len({other for _, other, _ in runs}) == 1 else f"{checkpoint}, {decoder}"


def _distinct(labels: dict[RunName, str]) -> dict[RunName, str]:
    """Labels that several runs share, with what tells these runs apart."""
    counts = Counter(labels.values())
    shared = {label for label, count in counts.items() if count > 1}
    groups = {x: [run for run, label in labels.items() if label == x] for x in shared}
    return {
        run: f"{label} ({_own_name(run, groups[label])})" if label in shared else label
        for run, label in labels.items()
    }
