"""The report as one HTML page that needs no network, no fonts and no other files.

The templates escape every value. The page's content security policy lets it load nothing but the
pictures embedded in it, lets only `report.css` and `page.css` style it, and lets only `player.js`
and `showcase.js` run.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from remask.evaluation.registry import find_suite
from remask.evaluation.report.answer import draw_answer, heading_of
from remask.evaluation.report.figures import draw_chart
from remask.evaluation.report.gallery import Gallery, make_gallery
from remask.evaluation.report.layout import ShownTable, lay_out
from remask.evaluation.report.origin import Facts, make_origin
from remask.evaluation.report.playable import player_runs
from remask.evaluation.report.results import Evaluation
from remask.evaluation.report.templates import read_own, render_template
from remask.evaluation.stats.curves import make_charts
from remask.evaluation.stats.headline import make_headline
from remask.evaluation.stats.tables import MISSING, make_tables, readable


@dataclass(frozen=True)
class Part:
    """What the page shows of one evaluation."""

    title: str
    """Empty if the page shows a single one."""
    tables: list[ShownTable]
    charts: list[Markup]
    gallery: Gallery


def render(evaluations: Sequence[Evaluation]) -> str:
    """The whole page."""
    style = read_own("report.css") + read_own("page.css")
    script = read_own("player.js") + read_own("showcase.js")
    titles = _titles(evaluations)
    headlines = [make_headline(e.scores, e.headline, e.tables, e.settings) for e in evaluations]
    parts = [
        Part(
            title=title if len(evaluations) > 1 else "",
            tables=[shown for t in make_tables(e.scores, e.tables) for shown in lay_out(t)],
            charts=[
                draw_chart(chart, f"chart-{i}-{k}", has_suites=e.scores["suite"].n_unique() > 1)
                for k, chart in enumerate(make_charts(e.scores, e.curves, e.labels))
            ],
            gallery=make_gallery(e, headline.runs if headline else ()),
        )
        for i, (e, title, headline) in enumerate(zip(evaluations, titles, headlines, strict=True))
    ]
    answers = [
        draw_answer(headline, part.title)
        for headline, part in zip(headlines, parts, strict=True)
        if headline is not None
    ]
    question = heading_of([x for x in headlines if x is not None])
    runs = player_runs(evaluations, titles, headlines)
    return render_template(
        "page.html",
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}",
        style=style,
        script=script,
        missing=MISSING,
        title=titles[0] if len(titles) == 1 else f"{titles[0]}, and {len(titles) - 1} more",
        summary=_summary([run for evaluation in evaluations for run in evaluation.runs]),
        question=question,
        answers=answers,
        contents=_contents(question, answers, runs, parts),
        parts=parts,
        glossary=_glossary(evaluations),
        player_runs=runs,
        not_shown=[sentence for e in evaluations for sentence in e.not_shown],
        origins=[make_origin(evaluation) for evaluation in evaluations],
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _titles(evaluations: Sequence[Evaluation]) -> list[str]:
    """The titles, numbered where they are equal."""
    titles = [evaluation.title for evaluation in evaluations]
    return [
        title if titles.count(title) == 1 else f"{title} ({titles[: i + 1].count(title)})"
        for i, title in enumerate(titles)
    ]


def _contents(
    question: str, answers: Sequence[Markup], runs: Sequence[Any], parts: Sequence[Part]
) -> Facts:
    """The ids of the page's sections, with their headings."""
    has_charts = any(part.charts for part in parts)
    has_samples = any(part.gallery.samples or part.gallery.questions for part in parts)
    sections = (
        ("answer", question, answers),
        ("player", "Step by step", runs),
        ("figures", "Figures", parts),
        ("curves", "Curves", has_charts),
        ("samples", "Samples", has_samples),
        ("origin", "How it was made", parts),
    )
    return [(name, heading) for name, heading, is_shown in sections if is_shown]


def _summary(runs: Sequence[dict[str, Any]]) -> list[str]:
    """What was evaluated, in a line."""
    checkpoints = len({(run.get("checkpoint"), run.get("member")) for run in runs})
    return [
        _counted(checkpoints, "checkpoint"),
        _counted(len(runs), "run"),
        _counted(_total(runs, "samples"), "sample") + " decoded",
        _counted(_total(runs, "forward_passes"), "forward pass", "es"),
    ]


def _counted(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _total(runs: Iterable[dict[str, Any]], key: str) -> int:
    return sum(run[key] for run in runs if isinstance(run.get(key), int))


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
