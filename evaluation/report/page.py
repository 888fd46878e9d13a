"""The report as one HTML page that needs no network, no fonts and no other files.

The templates escape every value. The page's content security policy lets it load nothing but the
pictures embedded in it, lets only `report.css` style it, and lets only `player.js` and
`showcase.js` run.
"""

import base64
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from remask.evaluation.player import PlayerSample
from remask.evaluation.registry import find_suite
from remask.evaluation.report.figures import draw_chart
from remask.evaluation.report.gallery import make_gallery
from remask.evaluation.report.results import Evaluation
from remask.evaluation.report.templates import read_own, render_template
from remask.evaluation.stats.curves import make_charts
from remask.evaluation.stats.tables import MISSING, Cell, Table, make_tables, readable

Facts = list[tuple[str, str]]
"""Names with their values, in the order in which the page lists them."""

RUN_COLUMNS = {
    "suite": "suite",
    "checkpoint": "checkpoint",
    "member": "member",
    "decoder": "decoder",
    "parameters": "parameters",
    "samples": "samples",
    "forward_passes": "forward passes",
    "fingerprint": "fingerprint",
    "path": "folder",
}
"""Facts of a run and the headings of their columns."""
NOT_PLAYED = ("heading", "pictures")
"""Fields of a sample that the gallery shows and the player does not need."""


@dataclass(frozen=True)
class ShownTable:
    """A table as `tables.html` takes it."""

    title: str
    note: str
    headings: list[str]
    lines: list[tuple[str, list[Cell]]]

    @property
    def is_split(self) -> list[bool]:
        """Whether each column has published figures beside the measured ones."""
        return [any(cells[i].quoted for _, cells in self.lines) for i in range(len(self.headings))]


@dataclass(frozen=True)
class Headline:
    """The best run by a table's first metric."""

    title: str
    label: str
    figure: str


@dataclass(frozen=True)
class Part:
    """Tables and charts of one evaluation."""

    name: str
    """The folder; empty if the page shows a single one."""
    tables: list[ShownTable]
    charts: list[Markup]


@dataclass(frozen=True)
class Origin:
    """How an evaluation's figures came about: versions, checkpoints, settings."""

    facts: Facts
    columns: list[str]
    rows: list[list[str]]
    settings: str
    recipe: str


def render(evaluations: Sequence[Evaluation]) -> str:
    """The whole page."""
    tables = [make_tables(e.scores, e.tables) for e in evaluations]
    style = read_own("report.css")
    script = read_own("player.js") + read_own("showcase.js")
    return render_template(
        "page.html",
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}",
        style=style,
        script=script,
        missing=MISSING,
        headlines=[line for own in tables for table in own if (line := _headline(table))],
        summary=_summary([run for evaluation in evaluations for run in evaluation.runs]),
        parts=[
            Part(
                name=evaluation.uri if len(evaluations) > 1 else "",
                tables=[ShownTable(t.title, t.note, *t.grid()) for t in own],
                charts=[
                    draw_chart(chart, f"chart-{i}-{k}")
                    for k, chart in enumerate(make_charts(evaluation.scores, evaluation.curves))
                ],
            )
            for i, (evaluation, own) in enumerate(zip(evaluations, tables, strict=True))
        ],
        glossary=_glossary(evaluations),
        galleries=[make_gallery(evaluation) for evaluation in evaluations],
        player_runs=list(_player_runs(evaluations)),
        not_shown=[sentence for e in evaluations for sentence in e.not_shown],
        origins=[_origin(evaluation) for evaluation in evaluations],
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _headline(table: Table) -> Headline | None:
    num_measured = sum(1 for row in table.rows if row.members)
    for row in table.rows:
        cell = row.cells[0] if row.cells else Cell()
        if cell.measured and (cell.is_best or num_measured == 1):
            column = table.columns[0]
            sign = "%" if column.unit == "share" else ""
            figure = f"{readable(column.metric)} {cell.text}{sign} {cell.interval}"
            return Headline(table.title, row.full_label, figure)
    return None


def _summary(runs: Sequence[dict[str, Any]]) -> Facts:
    return [
        ("Suites", _distinct(runs, "suite")),
        ("Checkpoints", _distinct(runs, "checkpoint")),
        ("Decoders", _distinct(runs, "decoder")),
        ("Runs", f"{len(runs):,}"),
        ("Samples decoded", _total(runs, "samples")),
        ("Forward passes", _total(runs, "forward_passes")),
    ]


def _distinct(runs: Iterable[dict[str, Any]], key: str) -> str:
    return ", ".join(dict.fromkeys(str(run.get(key, "?")) for run in runs)) or MISSING


def _total(runs: Iterable[dict[str, Any]], key: str) -> str:
    return f"{sum(run[key] for run in runs if isinstance(run.get(key), int)):,}"


def _glossary(evaluations: Sequence[Evaluation]) -> Facts:
    """The metrics shown, with what their suites say about them."""
    meanings: dict[tuple[str, str], None] = {}
    for evaluation in evaluations:
        metrics = evaluation.scores.select("suite_kind", "metric").unique(maintain_order=True)
        for kind, metric in metrics.iter_rows():
            suite = find_suite(kind)
            if suite is not None and metric in suite.glossary:
                meanings[readable(metric), suite.glossary[metric]] = None
    return list(meanings)


def _player_runs(evaluations: Sequence[Evaluation]) -> Iterator[dict[str, Any]]:
    """The samples as `player.js` reads them."""
    for evaluation in evaluations:
        for run in evaluation.showcase:
            yield {
                "name": run.name,
                "group": evaluation.uri if len(evaluations) > 1 else "",
                "samples": [_played(sample) for sample in run.samples],
            }


def _played(sample: PlayerSample) -> dict[str, Any]:
    names = (f.name for f in dataclasses.fields(sample) if f.name not in NOT_PLAYED)
    return {name: getattr(sample, name) for name in names}


def _origin(evaluation: Evaluation) -> Origin:
    facts = dict(evaluation.provenance)
    versions = facts.pop("versions", None)
    facts |= versions if isinstance(versions, dict) else {}
    settings = [
        {"run": f"{r.get('suite')}, {r.get('checkpoint')} {r.get('member')}, {r.get('decoder')}"}
        | {key: r.get(key) for key in ("settings", "suite_settings", "history")}
        for r in evaluation.runs
    ]
    return Origin(
        facts=[("folder", evaluation.uri), *((str(k), _plain(v)) for k, v in facts.items())],
        columns=list(RUN_COLUMNS.values()),
        rows=[[_plain(run.get(key)) for key in RUN_COLUMNS] for run in evaluation.runs],
        settings=_json(settings),
        recipe=_json(evaluation.recipe),
    )


def _plain(value: Any) -> str:
    if value is None:
        return MISSING
    return f"{value:,}" if type(value) is int else str(value)


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False)
