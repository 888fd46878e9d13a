"""Curves of scores as plain values: a chart per suite, metric and variable, with a line per run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from remask.evaluation.recipe import CurveConfig, LineConfig
from remask.evaluation.stats.labels import RunName, label_of, run_labels
from remask.evaluation.stats.members import ScoreEstimate, combine

PLACE = "place"


@dataclass(frozen=True)
class Point:
    at: float
    estimate: ScoreEstimate


@dataclass(frozen=True)
class Line:
    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Chart:
    suite: str
    metric: str
    by: str
    unit: str
    lines: tuple[Line, ...]

    @property
    def is_calibration(self) -> bool:
        """Whether the line of a perfect model would be the diagonal."""
        return self.by.startswith("p(") and self.unit == "share"


def make_charts(
    scores: pl.DataFrame,
    curves: Sequence[CurveConfig] = (),
    labels: Mapping[RunName, str] | None = None,
) -> list[Chart]:
    """The charts that a recipe asks for, and those of all curves within single runs.

    Args:
        scores: A table of the schema `SCORES`.
        curves: A recipe's curves.
        labels: The label of each run. Defaults to those of `run_labels`.
    """
    labels = run_labels(scores) if labels is None else labels
    within = sorted(_within_runs(scores, labels), key=lambda chart: chart.is_calibration)
    return [*_across_runs(scores, curves), *within]


def _across_runs(scores: pl.DataFrame, curves: Sequence[CurveConfig]) -> list[Chart]:
    charts = []
    for curve in curves:
        figures = scores.filter(pl.col("by").is_null(), pl.col("suite") == curve.suite)
        lines = tuple(_budgets(figures, line, curve.metric) for line in curve.lines)
        unit = figures.filter(pl.col("metric") == curve.metric)["unit"]
        if any(line.points for line in lines):
            charts.append(Chart(curve.suite, curve.metric, "forward passes", unit[0], lines))
    return charts


def _budgets(scores: pl.DataFrame, line: LineConfig, metric: str) -> Line:
    """A point per decoder, at its mean number of forward passes."""
    points = []
    for decoder in line.decoders:
        run = scores.filter(pl.col("checkpoint") == line.checkpoint, pl.col("decoder") == decoder)
        at, estimate = (
            combine(run.filter(pl.col("metric") == name)) for name in ("forward_passes", metric)
        )
        if at and estimate:
            points.append(Point(at.value, estimate))
    return Line(line.label, tuple(sorted(points, key=lambda point: point.at)))


def _within_runs(scores: pl.DataFrame, labels: Mapping[RunName, str]) -> list[Chart]:
    points = scores.filter(
        pl.col("by").is_not_null(), pl.col("at").is_finite(), pl.col("value").is_finite()
    )
    charts = []
    for (suite, by, metric), part in points.group_by("suite", "by", "metric", maintain_order=True):
        lines = []
        for (checkpoint, decoder), run in part.group_by(
            "checkpoint", "decoder", maintain_order=True
        ):
            name = (str(suite), str(checkpoint), str(decoder))
            lines += _lines(label_of(labels, name), run)
        if any(len(line.points) > 1 for line in lines):
            charts.append(Chart(str(suite), str(metric), str(by), part["unit"][0], tuple(lines)))
    return charts


def _lines(label: str, run: pl.DataFrame) -> list[Line]:
    """One line for all members if their points can be matched; otherwise one line per member."""
    run = run.sort("at")
    members = [part for _, part in run.group_by("member", maintain_order=True)]
    if len(members) == 1:
        return [_line(label, run.with_columns(pl.col("at").alias(PLACE)))]
    label_all = f"{label} (mean of {len(members)})"
    places = [set(part["at"]) for part in members]
    shared = set.intersection(*places)
    if shared == min(places, key=len):  # some members may take more steps than others
        return [_line(label_all, run.filter(pl.col("at").is_in(shared)).with_columns(place="at"))]
    if len({len(part) for part in members}) == 1:  # bins whose means differ a little
        ranked = pl.concat(part.with_row_index(PLACE) for part in members)
        return [_line(label_all, ranked)]
    return [
        _line(f"{label}, member {part['member'][0]}", part.with_columns(place="at"))
        for part in sorted(members, key=lambda part: part["member"][0])
    ]


def _line(label: str, run: pl.DataFrame) -> Line:
    points = []
    for _, part in run.sort(PLACE).group_by(PLACE, maintain_order=True):
        estimate = combine(part)
        if estimate:
            points.append(Point(float(part.select(pl.mean("at")).item()), estimate))
    return Line(label, tuple(points))
