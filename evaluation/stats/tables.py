"""Tables of scores as plain values: measured figures with intervals, published ones, the best.

The report and the terminal show the same tables.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from remask.evaluation.recipe import RowConfig, TableConfig
from remask.evaluation.stats.labels import run_labels
from remask.evaluation.stats.members import ScoreEstimate, combine
from remask.pipeline.runtime.terminal import visible

SCORES = pl.Schema(
    {
        "suite": pl.String,
        "suite_kind": pl.String,
        "suite_version": pl.Int64,
        "checkpoint": pl.String,
        "member": pl.Int64,
        "fingerprint": pl.String,
        "decoder": pl.String,
        "metric": pl.String,
        "by": pl.String,
        "at": pl.Float64,
        "value": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "count": pl.Int64,
        "unit": pl.String,
        "better": pl.String,
    }
)
"""Schema of `scores.parquet`, which has a row per figure. `by` is null for figures of a table, and
names the variable of a curve otherwise."""

WIDE = 6
"""A table with more metrics than this has them as rows."""
MISSING = "–"


@dataclass(frozen=True)
class Column:
    """A metric."""

    metric: str
    unit: str
    better: str

    @property
    def heading(self) -> str:
        arrow = {"higher": " ↑", "lower": " ↓"}.get(self.better, "")
        return f"{readable(self.metric)}{' %' if self.unit == 'share' else ''}{arrow}"


@dataclass(frozen=True)
class Cell:
    """A figure as it is shown; empty strings if there is none."""

    measured: ScoreEstimate | None = None
    text: str = ""
    interval: str = ""
    """Like `[91.7, 94.8]`."""
    quoted: str = ""
    is_best: bool = False


@dataclass(frozen=True)
class TableRow:
    """A run, published figures, or both."""

    label: str
    members: int
    """Number of checkpoints behind the figures; 0 if all of them are published ones."""
    cells: tuple[Cell, ...]

    @property
    def full_label(self) -> str:
        return f"{self.label} (mean of {self.members})" if self.members > 1 else self.label


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]

    def grid(
        self, *, is_transposed: bool | None = None
    ) -> tuple[list[str], list[tuple[str, list[Cell]]]]:
        """Headings and labelled lines of cells. By default a table with many metrics is
        transposed."""
        metrics, labels = [c.heading for c in self.columns], [r.full_label for r in self.rows]
        if not (len(metrics) > WIDE if is_transposed is None else is_transposed):
            return metrics, [(r.full_label, list(r.cells)) for r in self.rows]
        columns = zip(*(row.cells for row in self.rows), strict=True)
        return labels, [(m, list(cells)) for m, cells in zip(metrics, columns, strict=True)]


def readable(metric: str) -> str:
    return metric.replace("_", " ")


def make_tables(scores: pl.DataFrame, configs: Sequence[TableConfig] = ()) -> list[Table]:
    """The tables that a recipe asks for.

    Args:
        scores: A table of the schema `SCORES`.
        configs: A recipe's tables. Defaults to one table per suite with all runs and metrics.
    """
    figures = scores.filter(pl.col("by").is_null())
    return [_make_table(figures, config) for config in configs or default_tables(figures)]


def print_table(console: Console, table: Table) -> None:
    """Print a table in the terminal; a star marks the best figure of each metric.

    If the table is too wide, intervals go below their values; if it still is, it is transposed.
    """
    unbounded = console.options.update(max_width=10_000)
    for out in (
        _rich_table(table, " "),
        _rich_table(table, "\n"),
        _rich_table(table, " ", is_transposed=True),
        _rich_table(table, "\n", is_transposed=True),
    ):
        if console.measure(out, options=unbounded).maximum <= console.width:
            break
    console.print(out)


def _rich_table(table: Table, between: str, *, is_transposed: bool | None = None) -> RichTable:
    headings, lines = table.grid(is_transposed=is_transposed)
    out = RichTable(title=Text(visible(table.title)), box=box.SIMPLE_HEAD, title_justify="left")
    out.caption = Text(visible(table.note)) if table.note else None
    out.add_column()
    is_split = [any(cells[i].quoted for _, cells in lines) for i in range(len(headings))]
    for heading, split in zip(headings, is_split, strict=True):
        out.add_column(Text(visible(heading)), justify="right")
        if split:
            out.add_column(Text("quoted"), justify="right")
    for label, cells in lines:
        shown = [Text(visible(label))]
        for cell, split in zip(cells, is_split, strict=True):
            star, style = ("*", "bold") if cell.is_best else ("", "")
            value = f"{star}{cell.text or MISSING}"
            shown.append(Text(between.join(filter(None, (value, cell.interval))), style))
            shown += [Text(cell.quoted or MISSING)] if split else []
        out.add_row(*shown)
    return out


def default_tables(figures: pl.DataFrame) -> list[TableConfig]:
    """A table per suite with all its runs and metrics."""
    configs, labels = [], run_labels(figures)
    for (suite,), part in figures.group_by("suite", maintain_order=True):
        runs = part.select("checkpoint", "decoder").unique(maintain_order=True)
        rows = [
            RowConfig(label=labels[str(suite), c, d], checkpoint=c, decoder=d)
            for c, d in runs.iter_rows()
        ]
        metrics = part["metric"].unique(maintain_order=True).to_list()
        configs.append(
            TableConfig(
                title=str(suite), suite=str(suite), metrics=tuple(metrics), rows=tuple(rows)
            )
        )
    return configs


def _make_table(figures: pl.DataFrame, config: TableConfig) -> Table:
    figures = figures.filter(pl.col("suite") == config.suite)
    columns, cells = [], []
    for i, metric in enumerate(config.metrics):
        part = figures.filter(pl.col("metric") == metric)
        columns.append(_column(part, figures, config, metric))
        measured = [_measured(part, row) for row in config.rows]
        quoted = [_quoted(row, i) for row in config.rows]
        cells.append(_cells(columns[-1], measured, quoted))
    rows = [
        TableRow(row.label, max((c.measured.members for c in own if c.measured), default=0), own)
        for row, own in zip(config.rows, zip(*cells, strict=True), strict=True)
    ]
    return Table(config.title, config.note, tuple(columns), tuple(rows))


def _column(part: pl.DataFrame, figures: pl.DataFrame, config: TableConfig, metric: str) -> Column:
    if not part.is_empty():
        return Column(metric, part["unit"][0], part["better"][0])
    if not figures.is_empty():
        known = figures["metric"].unique(maintain_order=True).to_list()
        raise ValueError(
            f"table {config.title!r}: suite {config.suite!r} has no metric {metric!r}; "
            f"it has {known}"
        )
    return Column(metric, "number", "neither")  # no run of ours: published figures only


def _measured(part: pl.DataFrame, row: RowConfig) -> ScoreEstimate | None:
    if row.checkpoint is None:
        return None
    return combine(
        part.filter(pl.col("checkpoint") == row.checkpoint, pl.col("decoder") == row.decoder)
    )


def _quoted(row: RowConfig, index: int) -> float:
    """The published figure; NaN if there is none."""
    value = None if row.quoted is None else row.quoted[index]
    return math.nan if value is None else value


def _cells(column: Column, measured: list[ScoreEstimate | None], quoted: list[float]) -> list[Cell]:
    """The cells of one column, all with as many decimals as the published figures."""
    scale = 100 if column.unit == "share" else 1
    values = [m.value for m in measured if m]
    published = [q for q in quoted if math.isfinite(q)]
    printed = max((len(str(q).partition(".")[2]) for q in published), default=0)
    decimals = printed or decimals_for(scale * max(map(abs, values), default=0.0), column.unit)
    cells = []
    for estimate, q in zip(measured, quoted, strict=True):
        cell = Cell(quoted=f"{q:.{printed}f}" if math.isfinite(q) else "")
        if estimate:
            text, interval = show(estimate, scale, decimals)
            cell = replace(cell, measured=estimate, text=text, interval=interval)
        cells.append(cell)
    best = _best(column, [c for c in cells if c.measured])
    return [replace(cell, is_best=cell.text == best) if cell.text else cell for cell in cells]


def _best(column: Column, cells: list[Cell]) -> str | None:
    """The best figure as it is shown, since figures that look equal count as equal; None if all
    look equal."""
    if len({cell.text for cell in cells}) < 2 or column.better == "neither":
        return None
    choose = max if column.better == "higher" else min
    return choose(cells, key=lambda c: c.measured.value if c.measured else math.nan).text


def decimals_for(largest: float, unit: str) -> int:
    """Number of decimals that leaves about three digits: 93.4 %, 0.57 %, 0.236."""
    if unit == "share":
        return 1 if largest >= 10 else 2
    return 3 if largest < 10 else 2 if largest < 100 else 1


def show(estimate: ScoreEstimate, scale: float, decimals: int) -> tuple[str, str]:
    """A figure and its interval as text; the interval is empty if it is unknown."""
    value, low, high = (
        f"{scale * number:.{decimals}f}" if math.isfinite(number) else ""
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return value, f"[{low}, {high}]" if low and high else ""
