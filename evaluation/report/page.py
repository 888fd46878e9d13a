"""The report as one HTML page that needs nothing else: no network, no fonts, no other files.

All text from data is escaped. The page's own policy lets it load nothing but the pictures written
into it, and run and style itself by `report.css` and `player.js` alone.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from remask.evaluation.report.figures import draw_chart
from remask.evaluation.report.gallery import draw_gallery, run_name
from remask.evaluation.report.glossary import MEANINGS
from remask.evaluation.report.results import Evaluation
from remask.evaluation.stats.curves import make_charts
from remask.evaluation.stats.tables import NOTHING, Cell, Table, make_tables, readable


def render(evaluations: Sequence[Evaluation]) -> str:
    """The whole page."""
    tables = [make_tables(e.scores, e.tables) for e in evaluations]
    style, script = (_resource(name) for name in ("report.css", "player.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    )
    body = [_summary(evaluations, tables)]
    for i, (evaluation, own) in enumerate(zip(evaluations, tables, strict=True)):
        name = evaluation.uri if len(evaluations) > 1 else ""
        body += [_tables_section(own, name), _charts_section(evaluation, name, f"chart-{i}")]
    body.append(_glossary(evaluations))
    body += [draw_gallery(evaluation) for evaluation in evaluations]
    body.append(_player(evaluations))
    body += [_origin(evaluation) for evaluation in evaluations]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Evaluation report</title>
<style>{style}</style>
</head>
<body>
<main>
{"".join(body)}
</main>
<script>{script}</script>
</body>
</html>
"""


def embed(values: Any) -> str:
    """JSON that can stand in a script element whatever it holds."""
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _resource(name: str) -> str:
    return (files("remask.evaluation.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _summary(evaluations: Sequence[Evaluation], tables: Sequence[Sequence[Table]]) -> str:
    runs = [run for evaluation in evaluations for run in evaluation.runs]
    facts = {
        "Suites": _distinct(runs, "suite"),
        "Checkpoints": _distinct(runs, "checkpoint"),
        "Decoders": _distinct(runs, "decoder"),
        "Runs": f"{len(runs):,}",
        "Samples decoded": _total(runs, "samples"),
        "Forward passes": _total(runs, "forward_passes"),
    }
    told = [line for own in tables for table in own if (line := _headline(table))]
    listed = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())
    return (
        "<header><h1>Evaluation report</h1>"
        f'<ul class="headlines">{"".join(told)}</ul><dl class="facts">{listed}</dl></header>'
    )


def _headline(table: Table) -> str:
    """The best run by a table's first metric, in a line."""
    for row in table.rows:
        cell = row.cells[0] if row.cells else Cell()
        if cell.measured and (cell.is_best or sum(1 for r in table.rows if r.members) == 1):
            column = table.columns[0]
            sign = "%" if column.unit == "share" else ""
            figure = f"{readable(column.metric)} {cell.text}{sign} {cell.interval}"
            return (
                f"<li><b>{escape(table.title)}</b> {escape(row.full_label)}: "
                f'<span class="figure">{escape(figure)}</span></li>'
            )
    return ""


def _distinct(runs: Iterable[dict[str, Any]], key: str) -> str:
    return ", ".join(dict.fromkeys(str(run.get(key, "?")) for run in runs)) or NOTHING


def _total(runs: Iterable[dict[str, Any]], key: str) -> str:
    return f"{sum(run[key] for run in runs if isinstance(run.get(key), int)):,}"


def _tables_section(tables: Sequence[Table], name: str) -> str:
    shown = "".join(_table(table) for table in tables)
    return (
        f"<section><h2>{_heading('Figures', name)}</h2>"
        f'<p class="note">In brackets: 95% intervals, over the members where a row is a mean of '
        f"several, else over samples. Bold: the best of our own rows.</p>{shown}</section>"
    )


def _heading(title: str, name: str) -> str:
    return f"{title} <small>{escape(name)}</small>" if name else title


def _table(table: Table) -> str:
    headings, lines = table.grid()
    is_split = [any(cells[i].quoted for _, cells in lines) for i in range(len(headings))]
    top, below = [], []
    for heading, split in zip(headings, is_split, strict=True):
        span = ' colspan="2" scope="colgroup"' if split else ' scope="col"'
        top.append(f"<th{span}>{escape(heading)}</th>")
        below.append(
            '<th scope="col">measured</th><th scope="col">quoted</th>' if split else "<td></td>"
        )
    second = f"<tr><td></td>{''.join(below)}</tr>" if any(is_split) else ""
    body = []
    for label, cells in lines:
        shown = "".join(_cell(c, split) for c, split in zip(cells, is_split, strict=True))
        body.append(f'<tr><th scope="row">{escape(label)}</th>{shown}</tr>')
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    title = escape(table.title)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table><caption>{title}</caption><thead><tr><td></td>{''.join(top)}</tr>{second}</thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>{note}"
    )


def _cell(cell: Cell, split: bool) -> str:
    value = escape(cell.text or NOTHING)
    if cell.is_best:
        value = f'<b>{value}</b><span class="hidden"> (best)</span>'
    interval = f' <span class="interval">{escape(cell.interval)}</span>' if cell.interval else ""
    quoted = f'<td class="quoted">{escape(cell.quoted or NOTHING)}</td>' if split else ""
    return f"<td>{value}{interval}</td>{quoted}"


def _charts_section(evaluation: Evaluation, name: str, identity: str) -> str:
    charts = make_charts(evaluation.scores, evaluation.curves)
    if not charts:
        return ""
    drawn = "".join(draw_chart(chart, f"{identity}-{i}") for i, chart in enumerate(charts))
    return (
        f'<section><h2>{_heading("Curves", name)}</h2><div class="charts">{drawn}</div></section>'
    )


def _glossary(evaluations: Sequence[Evaluation]) -> str:
    present = dict.fromkeys(m for e in evaluations for m in e.scores["metric"].to_list())
    known = [
        f"<div><dt>{escape(readable(metric))}</dt><dd>{escape(MEANINGS[metric])}</dd></div>"
        for metric in present
        if metric in MEANINGS
    ]
    if not known:
        return ""
    return (
        "<details><summary>What the figures mean</summary>"
        f'<dl class="facts">{"".join(known)}</dl></details>'
    )


def _player(evaluations: Sequence[Evaluation]) -> str:
    runs = [
        {
            "name": run_name(entry),
            "group": evaluation.uri if len(evaluations) > 1 else "",
            "samples": [{k: v for k, v in s.items() if k != "pictures"} for s in entry["samples"]],
        }
        for evaluation in evaluations
        for entry in evaluation.showcase
        if entry["samples"]
    ]
    skipped = "".join(f'<p class="note">{escape(s)}.</p>' for e in evaluations for s in e.not_shown)
    if not runs:
        return skipped or '<p class="note">There are no samples to step through.</p>'
    data = f'<script type="application/json" id="showcase">{embed(runs)}</script>'
    return _resource("player.html") + data + skipped


def _origin(evaluation: Evaluation) -> str:
    """How the figures came about: programs, checkpoints, settings."""
    columns = {
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
    head = "".join(f'<th scope="col">{title}</th>' for title in columns.values())
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_plain(run.get(key)))}</td>' for key in columns)}</tr>"
        for run in evaluation.runs
    )
    facts = dict(evaluation.provenance)
    versions = facts.pop("versions", None)
    facts |= versions if isinstance(versions, dict) else {}
    listed = "".join(
        f"<div><dt>{escape(str(k))}</dt><dd>{escape(_plain(v))}</dd></div>"
        for k, v in {"folder": evaluation.uri, **facts}.items()
    )
    settings = [
        {"run": f"{r.get('suite')}, {r.get('checkpoint')} {r.get('member')}, {r.get('decoder')}"}
        | {key: r.get(key) for key in ("settings", "suite_settings", "history")}
        for r in evaluation.runs
    ]
    return (
        f'<section class="origin"><h2>How it was made</h2><dl class="facts">{listed}</dl>'
        '<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs">'
        f"<caption>Runs</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"<details><summary>Settings of each run</summary>{_pre(settings)}</details>"
        f"<details><summary>Recipe</summary>{_pre(evaluation.recipe)}</details></section>"
    )


def _plain(value: Any) -> str:
    if value is None:
        return NOTHING
    return f"{value:,}" if type(value) is int else str(value)


def _pre(values: Any) -> str:
    return f"<pre>{escape(json.dumps(values, indent=2, ensure_ascii=False))}</pre>"
