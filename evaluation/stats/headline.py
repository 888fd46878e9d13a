"""Did revision help? One figure of the runs that revise beside those that do not."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from remask.evaluation.recipe import HeadlineConfig, RowConfig, TableConfig
from remask.evaluation.registry import find_outcome
from remask.evaluation.stats.labels import RunName
from remask.evaluation.stats.members import ScoreEstimate, combine
from remask.evaluation.stats.tables import decimals_for, default_tables, readable, show
from remask.evaluation.stats.verdict import Bar, Fragment, Role, Verdict, judge, say
from remask.evaluation.suite import Outcome

REVISING, EDITING = ("revision", "tuned"), "two_phase"
"""Policies that revise; the last one does if it does not start from MASKs alone."""
MAX_BARS = 12
"""Limit on the rows of the picture."""


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
    answer: RunName
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
    rows = config.rows if config is not None and config.rows else table.rows
    if config is None or not config.rows:
        rows = tuple(_without_others(row, table.metrics, metric) for row in rows)
    return _compare(figures, table.suite, metric, outcome, rows, settings)


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
    suite: str,
    metric: str,
    outcome: Outcome | None,
    rows: Sequence[RowConfig],
    settings: Mapping[RunName, Any],
) -> Headline | None:
    bars = [_bar(figures, suite, metric, row, settings) for row in rows]
    revising = [i for i, bar in enumerate(bars) if bar.role == "revised" and bar.estimate]
    if not revising:
        return None
    last = revising[-1]
    bars[last] = replace(bars[last], role="answer")
    own = _run(figures, rows[last])
    if outcome is not None and (before := _estimate(own, outcome.before)):
        bars.insert(0, Bar(outcome.before_label, "before", before))
    ceiling = None if outcome is None else _estimate(own, outcome.ceiling)
    facts = own.filter(pl.col("metric") == metric).row(0, named=True)
    unit, better = facts["unit"], facts["better"]
    scale = 100 if unit == "share" else 1
    known = [x for x in (*(bar.estimate for bar in bars), ceiling) if x]
    decimals = decimals_for(scale * max(abs(x.value) for x in known), unit)

    def shown(estimate: ScoreEstimate | None) -> tuple[str, str]:
        if estimate is None:
            return "", ""
        text, interval = show(estimate, scale, decimals)
        return f"{text}%" if unit == "share" else text, interval

    bars = [replace(x, text=text, interval=y) for x in bars for text, y in [shown(x.estimate)]]
    answer = next(bar for bar in bars if bar.role == "answer")
    rivals = [bar for bar in bars if bar.is_rival]
    top = shown(ceiling)[0]
    sentence = say(
        answer,
        rivals,
        better,
        ceiling=top,
        count=facts["count"],
        metric=metric,
        outcome=outcome,
    )
    return Headline(
        suite=suite,
        heading=f"{outcome.samples} that {outcome.success}" if outcome else readable(metric),
        unit=unit,
        verdict=judge(answer, rivals, better),
        sentence=tuple(sentence),
        bars=tuple(_shortened(bars)),
        ceiling=ceiling,
        ceiling_text=top,
        runs=tuple(_name(suite, row) for row in rows),
        answer=_name(suite, rows[last]),
    )


def _bar(
    figures: pl.DataFrame,
    suite: str,
    metric: str,
    row: RowConfig,
    settings: Mapping[RunName, Any],
) -> Bar:
    quoted = math.nan if row.quoted is None or row.quoted[0] is None else row.quoted[0]
    if row.checkpoint is None:
        return Bar(row.label, "other", None, quoted=quoted)
    own = settings.get(_name(suite, row))
    decoder = own if isinstance(own, dict) else {}
    return Bar(row.label, _role(decoder), _estimate(_run(figures, row), metric), quoted=quoted)


def _role(decoder: Mapping[str, Any]) -> Role:
    policy, start = decoder.get("policy", REVISING[0]), decoder.get("start", "given")
    if start == "oracle":
        return "told"
    return "revised" if policy in REVISING or (policy, start) == (EDITING, "given") else "other"


def _run(figures: pl.DataFrame, row: RowConfig) -> pl.DataFrame:
    return figures.filter(
        pl.col("checkpoint") == (row.checkpoint or ""), pl.col("decoder") == (row.decoder or "")
    )


def _estimate(run: pl.DataFrame, metric: str | None) -> ScoreEstimate | None:
    return combine(run.filter(pl.col("metric") == metric)) if metric else None


def _name(suite: str, row: RowConfig) -> RunName:
    return suite, row.checkpoint or "", row.decoder or ""


def _shortened(bars: Sequence[Bar]) -> list[Bar]:
    """The first bars, and that of the answer."""
    if len(bars) <= MAX_BARS:
        return list(bars)
    first, rest = bars[: MAX_BARS - 1], bars[MAX_BARS - 1 :]
    answer = [bar for bar in rest if bar.role == "answer"]
    return [*first, *(answer or rest[:1])]
