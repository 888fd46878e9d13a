"""Samples as `showcase.js` reads them, with the most telling one first."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from remask.evaluation.player import PlayerSample
from remask.evaluation.report.results import Evaluation
from remask.evaluation.stats.headline import Headline

NOT_PLAYED = ("heading", "pictures")
"""Fields of a sample that the gallery shows and the player does not need."""


def player_runs(
    evaluations: Sequence[Evaluation],
    titles: Sequence[str],
    headlines: Sequence[Headline | None],
) -> list[dict[str, Any]]:
    """The runs with samples to step through.

    The player opens with the first sample of the first run: the run that the headline is about, and
    a sample that it put right. Of other runs, the player shows the same sample if they have it.
    """
    runs: list[tuple[bool, dict[str, Any]]] = []
    for evaluation, title, headline in zip(evaluations, titles, headlines, strict=True):
        has_suites = len({run.suite for run in evaluation.showcase}) > 1
        for run in evaluation.showcase:
            samples = [sample for sample in run.samples if sample.is_playable]
            group = [title] * (len(evaluations) > 1) + [run.suite] * has_suites
            values = {
                "name": run.label,
                "group": ": ".join(group),
                "samples": [
                    _played(x) for x in sorted(samples, key=lambda x: x.telling, reverse=True)
                ],
            }
            if samples:
                runs.append((headline is not None and run.run == headline.answer, values))
    return [values for _, values in sorted(runs, key=lambda run: not run[0])]


def _played(sample: PlayerSample) -> dict[str, Any]:
    names = [f.name for f in dataclasses.fields(sample) if f.name not in NOT_PLAYED]
    answer = None if sample.answer is None else dataclasses.asdict(sample.answer)
    return {name: getattr(sample, name) for name in names} | {"answer": answer}
