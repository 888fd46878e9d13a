"""Did revision help? One figure of the runs that revise beside those that do not."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from remask.evaluation.recipe import HeadlineConfig, RowConfig, TableConfig
from remask.evaluation.registry import find_outcome
from remask.evaluation.stats.labels import RunName
from remask.evaluation.stats.members import ScoreEstimate, combine
from remask.evaluation.stats.tables import decimals_for, default_tables, readable, show
from remask.evaluation.suite import Outcome

REVISING = ("revision", "tuned", "two_phase")
"""Policies for models that were trained to revise."""
MAX_BARS = 12
"""Limit on the rows of the picture."""
MAX_SAID = 3
"""Limit on the runs that the sentence compares with by name."""

Role = Literal["before", "other", "told", "revised", "answer"]
"""Samples without revision; a run without it; one that is told what is wrong; one that revises;
the one that the question is about."""
Verdict = Literal["yes", "no", "unclear"]
Fragment = tuple[str, bool]
"""A part of a sentence, and whether it is emphasised."""


@dataclass(frozen=True)
class Bar:
    """A row of the picture."""

    label: str
    role: Role
    estimate: ScoreEstimate | None
    text: str
    interval: str
    quoted: float = math.nan
    """The published figure, as printed; NaN if there is none."""


@dataclass(frozen=True)
class Headline:
    """What opens the report."""

    suite: str
    heading: str
    """What the figure is, for the picture."""
    unit: str
    verdict: Verdict | None
    """None if there is nothing to compare with."""
    sentence: tuple[Fragment, ...]
    bars: tuple[Bar, ...]
    ceiling: ScoreEstimate | None
    ceiling_text: str
    runs: tuple[RunName, ...]
    """The runs of the picture."""
    answer: RunName | None
    """The run that the question is about."""


def make_headline(
    scores: pl.DataFrame,
    config: HeadlineConfig | None,
    tables: Sequence[TableConfig],
    settings: Mapping[RunName, Any],
) -> Headline | None:
    """The headline of an evaluation; None if none of its runs revises.

    Args:
        scores: A table of the schema `SCORES`.
        config: A recipe's headline. Defaults to the first table's suite and rows.
        tables: A recipe's tables.
        settings: Settings of each run's decoder.
    """
    figures = scores.filter(pl.col("by").is_null())
    table = _table_of(figures, config, tables)
    if table is None:
        return None
    figures = figures.filter(pl.col("suite") == table.suite)
    outcome = find_outcome(figures["suite_kind"][0])
    metric = _metric(figures, config, table, outcome)
    if outcome is not None and outcome.metric != metric:
        outcome = None
    part = figures.filter(pl.col("metric") == metric)
    rows = config.rows if config is not None and config.rows else table.rows
    if config is None or not config.rows:
        rows = tuple(_without_others(row, table.metrics, metric) for row in rows)
    return _compare(figures, part, table.suite, metric, outcome, rows, settings)


def _table_of(
    figures: pl.DataFrame, config: HeadlineConfig | None, tables: Sequence[TableConfig]
) -> TableConfig | None:
    """The first table with scores, of the headline's suite if it names one."""
    known = set(figures["suite"])
    wanted = known if config is None else known & {config.suite}
    candidates = [*tables, *default_tables(figures)]
    return next((table for table in candidates if table.suite in wanted), None)


def _metric(
    figures: pl.DataFrame,
    config: HeadlineConfig | None,
    table: TableConfig,
    outcome: Outcome | None,
) -> str:
    known = figures["metric"].unique(maintain_order=True).to_list()
    if config is not None and config.metric is not None:
        if config.metric not in known:
            raise ValueError(
                f"headline: suite {config.suite!r} has no metric {config.metric!r}; it has {known}"
            )
        return config.metric
    return outcome.metric if outcome is not None and outcome.metric in known else table.metrics[0]


def _without_others(row: RowConfig, metrics: Sequence[str], metric: str) -> RowConfig:
    """The row with its figure of one metric alone."""
    quoted = None
    if row.quoted is not None and metric in metrics:
        quoted = (row.quoted[metrics.index(metric)],)
    return RowConfig(
        label=row.label,
        checkpoint=row.checkpoint,
        decoder=row.decoder,
        quoted=quoted if row.quoted is None or quoted else (None,),
    )


def _compare(
    figures: pl.DataFrame,
    part: pl.DataFrame,
    suite: str,
    metric: str,
    outcome: Outcome | None,
    rows: Sequence[RowConfig],
    settings: Mapping[RunName, Any],
) -> Headline | None:
    measured = {i: _estimate(part, row) for i, row in enumerate(rows)}
    roles = {i: _role(row, suite, settings) for i, row in enumerate(rows)}
    revising = [i for i in roles if roles[i] == "revised" and measured[i]]
    if not revising:
        return None
    last, unit = revising[-1], part["unit"][0]
    own = rows[last]
    before = ceiling = None
    if outcome is not None:
        run = figures.filter(
            pl.col("checkpoint") == own.checkpoint, pl.col("decoder") == own.decoder
        )
        before, ceiling = (
            combine(run.filter(pl.col("metric") == name)) if name else None
            for name in (outcome.before, outcome.ceiling)
        )
    values = [x.value for x in (*measured.values(), before, ceiling) if x]
    scale = 100 if unit == "share" else 1
    decimals = decimals_for(scale * max(map(abs, values)), unit)

    def bar(label: str, role: Role, estimate: ScoreEstimate | None, quoted: float) -> Bar:
        text, interval = show(estimate, scale, decimals) if estimate else ("", "")
        return Bar(label, role, estimate, text and f"{text}{_sign(unit)}", interval, quoted)

    bars = [
        bar(
            row.label,
            "answer" if i == last else roles[i],
            measured[i],
            math.nan if row.quoted is None or row.quoted[0] is None else row.quoted[0],
        )
        for i, row in enumerate(rows)
    ]
    if len(bars) > MAX_BARS - 1:
        bars = [bars[i] for i in sorted({*range(MAX_BARS - 2), last})]
    if before is not None and outcome is not None:
        bars.insert(0, bar(outcome.before_label, "before", before, math.nan))
    count = int(part.filter(pl.col("checkpoint") == own.checkpoint)["count"][0])
    rivals = [x for x in bars if x.role in ("before", "other") and x.estimate]
    answer = next(x for x in bars if x.role == "answer")
    better = part["better"][0]
    top = "" if ceiling is None else f"{show(ceiling, scale, decimals)[0]}{_sign(unit)}"
    return Headline(
        suite=suite,
        heading=f"{outcome.samples} that {outcome.success}" if outcome else readable(metric),
        unit=unit,
        verdict=_verdict(answer, rivals, better),
        sentence=tuple(_sentence(answer, rivals, top, count, metric, outcome, better)),
        bars=tuple(bars),
        ceiling=ceiling,
        ceiling_text=top,
        runs=tuple(
            (suite, row.checkpoint, row.decoder)
            for row in rows
            if row.checkpoint is not None and row.decoder is not None
        ),
        answer=None if own.checkpoint is None else (suite, own.checkpoint, own.decoder or ""),
    )


def _estimate(part: pl.DataFrame, row: RowConfig) -> ScoreEstimate | None:
    return combine(
        part.filter(pl.col("checkpoint") == row.checkpoint, pl.col("decoder") == row.decoder)
    )


def _role(row: RowConfig, suite: str, settings: Mapping[RunName, Any]) -> Role:
    own = settings.get((suite, row.checkpoint or "", row.decoder or ""))
    own = own if isinstance(own, dict) else {}
    if own.get("start") == "oracle":
        return "told"
    return "revised" if own.get("policy", REVISING[0]) in REVISING else "other"


def _verdict(answer: Bar, rivals: Sequence[Bar], better: str) -> Verdict | None:
    """Whether the run's interval lies beyond those of all rivals, or short of one of them."""
    if not rivals or answer.estimate is None or better == "neither":
        return None
    own = _upwards(answer.estimate, better)
    others = [_upwards(x.estimate, better) for x in rivals if x.estimate]
    if all(own[0] > high for _, high in others):
        return "yes"
    return "no" if any(own[1] < low for low, _ in others) else "unclear"


def _upwards(estimate: ScoreEstimate, better: str) -> tuple[float, float]:
    """The ends of an interval such that more is better; the value itself where it has none."""
    low, high = (x if math.isfinite(x) else estimate.value for x in (estimate.low, estimate.high))
    return (low, high) if better == "higher" else (-high, -low)


def _sentence(
    answer: Bar,
    rivals: Sequence[Bar],
    ceiling: str,
    count: int,
    metric: str,
    outcome: Outcome | None,
    better: str,
) -> list[Fragment]:
    parts = [("With ", False), (answer.label, False), (", ", False)]
    if outcome is None:
        parts += [(f"{readable(metric)} is ", False), (answer.text, True)]
    else:
        parts += [
            (answer.text, True),
            (f" of {count:,} {outcome.samples} {outcome.success}", False),
        ]
    before = [x for x in rivals if x.role == "before"]
    others = [x for x in rivals if x.role == "other"]
    said = [[(x.text, True), (f" {x.label}", False)] for x in before]
    if len(others) > MAX_SAID:
        best = max(others, key=lambda x: _upwards(x.estimate, better)[0] if x.estimate else 0)
        said.append([(best.text, True), (f" at best without it ({best.label})", False)])
    else:
        said += [[(x.text, True), (f" with {x.label}", False)] for x in others]
    for i, clause in enumerate(said):
        parts += [("; " if i == 0 else ", ", False), *clause]
    parts.append((".", False))
    if ceiling:
        parts += [(" No reviser can be expected to exceed ", False), (ceiling, True), (".", False)]
    return parts


def _sign(unit: str) -> str:
    return "%" if unit == "share" else ""
