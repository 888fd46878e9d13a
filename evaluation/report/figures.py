"""Line charts as SVG: they scale, print, follow light and dark mode, and need no library.

Lines differ in dash and marker as well as in colour, which the style sheet sets by class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from remask.evaluation.report.templates import render_template
from remask.evaluation.stats.curves import Chart, Line, Point
from remask.evaluation.stats.tables import decimals_for, readable, show

WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 46
COLOURS = 8
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2 1 2 1 2")
MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",  # disc
    "M-3.5-3.5h7v7h-7z",  # square
    "M0-4.6 4.4 3.4h-8.8z",  # triangle
    "M0-5 5 0 0 5-5 0z",  # diamond
    "M-4-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",  # plus
    "M0 4.6-4.4-3.4h8.8z",  # triangle on its tip
    "M-4.5-2h9v4h-9z",  # bar
)
"""The numbers of colours, dashes and markers are coprime, so 280 lines differ pairwise."""
MAX_MARKERS = 24
"""Limit on the markers of a line; a longer line has a marker at every second point, third, ..."""


@dataclass(frozen=True)
class Axis:
    """Maps values to coordinates on the page."""

    ticks: tuple[float, ...]
    start: float
    """Coordinate of the first tick; y grows downwards."""
    end: float
    decimals: int

    def place(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        inside = min(max(value, low), high)
        return round(self.start + (self.end - self.start) * (inside - low) / (high - low), 1)

    def text(self, tick: float) -> str:
        return f"{tick:.{self.decimals}f}"


@dataclass(frozen=True)
class PlacedText:
    x: float
    y: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True)
class DrawnLine:
    """A line as `chart.html` takes it; paths are SVG path data."""

    label: str
    colour: str
    dash: str
    marker: str
    path: str
    """Empty for a single point."""
    band: str
    """The 95 % intervals; empty if fewer than two points have one."""
    marks: list[PlacedText]


@dataclass(frozen=True)
class DrawnChart:
    """A chart as `chart.html` takes it; paths are SVG path data."""

    title: str
    suite: str
    description: str
    rules: str
    axes: str
    ticks: list[PlacedText]
    x_label: str
    y_label: str
    middle_x: float
    middle_y: float
    ideal: str
    """The diagonal of a calibration curve; empty for other charts."""
    lines: list[DrawnLine]


def draw_chart(chart: Chart, identity: str) -> Markup:
    """A chart as an HTML figure with its caption and legend.

    Args:
        chart: At least one line with a point.
        identity: Prefix of the element ids, unique on the page.
    """
    return render_template(
        "chart.html", chart=_drawn(chart), identity=identity, width=WIDTH, height=HEIGHT
    )


def describe(chart: Chart) -> str:
    """The first and last point of each line, for readers who cannot see them."""
    spans = []
    for line in chart.lines:
        if line.points:
            first, last = line.points[0], line.points[-1]
            spans.append(f"{line.label}: {_say(first, chart.unit)} to {_say(last, chart.unit)}")
    return f"{readable(chart.metric)} by {chart.by}, with 95% intervals. " + "; ".join(spans) + "."


def nice_ticks(
    low: float, high: float, max_steps: int = 6, whole: bool = False
) -> tuple[float, ...]:
    """Round numbers at equal distances, from at most `low` to at least `high`."""
    if low == high:
        high = low + (abs(low) or 1.0)
    power = 10.0 ** math.floor(math.log10((high - low) / max_steps))
    steps = (power * factor for factor in (1, 2, 5, 10, 20))
    candidates = (_multiples(low, high, max(step, 1.0) if whole else step) for step in steps)
    return next(ticks for ticks in candidates if len(ticks) <= max_steps + 1)


def _multiples(low: float, high: float, step: float) -> tuple[float, ...]:
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(k * step, 12) for k in range(first, max(last, first + 1) + 1))


def _drawn(chart: Chart) -> DrawnChart:
    x, y = _axes(chart)
    baseline = "".join(f"M{x.place(t)} {y.start}v4" for t in x.ticks)
    return DrawnChart(
        title=f"{readable(chart.metric)} by {chart.by}",
        suite=chart.suite,
        description=describe(chart),
        rules="".join(f"M{x.start} {y.place(t)}H{x.end}" for t in y.ticks[1:]),
        axes=f"M{x.start} {y.end}V{y.start}H{x.end}{baseline}",
        ticks=[
            *(PlacedText(x.place(t), y.start + 18, x.text(t)) for t in x.ticks),
            *(PlacedText(x.start - 7, y.place(t) + 4, y.text(t), "end") for t in y.ticks),
        ],
        x_label=chart.by,
        y_label=readable(chart.metric) + (", %" if chart.unit == "share" else ""),
        middle_x=(x.start + x.end) / 2,
        middle_y=(y.start + y.end) / 2,
        ideal=f"M{x.start} {y.start}L{x.end} {y.end}" if chart.is_calibration else "",
        lines=[_drawn_line(line, i, x, y, chart.unit) for i, line in enumerate(chart.lines)],
    )


def _axes(chart: Chart) -> tuple[Axis, Axis]:
    scale = _scale(chart.unit)
    points = [point for line in chart.lines for point in line.points]
    places = [point.at for point in points]
    heights = [scale * v for p in points for v in _extent(p)]
    if chart.is_calibration:
        across, up = nice_ticks(0, 1), nice_ticks(0, scale)
    else:
        whole = all(place.is_integer() for place in places)
        across = nice_ticks(min(places), max(places), 10, whole)
        up = nice_ticks(min(heights), max(heights))
    return (
        Axis(across, LEFT, WIDTH - RIGHT, _decimals(across)),
        Axis(up, HEIGHT - BOTTOM, TOP, _decimals(up)),
    )


def _extent(point: Point) -> tuple[float, ...]:
    """The finite values among a point's estimate and its interval."""
    values = (point.estimate.value, point.estimate.low, point.estimate.high)
    return tuple(value for value in values if math.isfinite(value))


def _decimals(ticks: Sequence[float]) -> int:
    """The fewest decimals that write every tick exactly."""
    return next((n for n in range(6) if all(abs(round(t, n) - t) < 1e-9 for t in ticks)), 6)


def _drawn_line(line: Line, i: int, x: Axis, y: Axis, unit: str) -> DrawnLine:
    scale = _scale(unit)
    places = [(x.place(p.at), y.place(scale * p.estimate.value)) for p in line.points]
    every = math.ceil(len(places) / MAX_MARKERS) or 1
    return DrawnLine(
        label=line.label,
        colour=f"c{i % COLOURS}",
        dash=DASHES[i % len(DASHES)],
        marker=MARKERS[i % len(MARKERS)],
        path="M" + "L".join(f"{px} {py}" for px, py in places) if len(places) > 1 else "",
        band=_band(line.points, x, y, scale),
        marks=[
            PlacedText(px, py, f"{line.label}: {_say(point, unit, with_interval=True)}")
            for point, (px, py) in list(zip(line.points, places, strict=True))[::every]
        ],
    )


def _band(points: Sequence[Point], x: Axis, y: Axis, scale: float) -> str:
    known = [p for p in points if math.isfinite(p.estimate.low + p.estimate.high)]
    if len(known) < 2:
        return ""
    upper = [f"{x.place(p.at)} {y.place(scale * p.estimate.high)}" for p in known]
    lower = [f"{x.place(p.at)} {y.place(scale * p.estimate.low)}" for p in reversed(known)]
    return f"M{'L'.join(upper + lower)}z"


def _scale(unit: str) -> int:
    return 100 if unit == "share" else 1


def _say(point: Point, unit: str, with_interval: bool = False) -> str:
    scale, sign = _scale(unit), "%" if unit == "share" else ""
    decimals = decimals_for(scale * abs(point.estimate.value), unit)
    value, interval = show(point.estimate, scale, decimals)
    shown = f"{value} {interval}" if with_interval and interval else value
    return f"{shown}{sign} at {point.at:.3g}"
