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
COLOURS = 9
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
"""The numbers of colours, dashes and markers are coprime, so 315 lines differ pairwise."""
SMALL_PART = 0.25
"""An axis is broken if its values would take less than this part of it."""
MAX_BANDS = 4
"""Limit on the lines of a chart with bands; those of more lines cannot be told apart."""
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

    @property
    def is_broken(self) -> bool:
        """Whether the axis leaves out a part between zero and its first tick."""
        return self.ticks[0] > 0

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
    """The 95 % intervals; empty if fewer than two points have one, or there are many lines."""
    marks: list[PlacedText]


@dataclass(frozen=True)
class DrawnChart:
    """A chart as `chart.html` takes it; paths are SVG path data."""

    title: str
    suite: str
    description: str
    rules: str
    axes: str
    breaks: str
    """Two strokes across each axis that does not start at zero."""
    warning: str
    """The same in words; empty if both axes start at zero."""
    ticks: list[PlacedText]
    x_label: str
    y_label: str
    middle_x: float
    middle_y: float
    ideal: str
    """The diagonal of a calibration curve; empty for other charts."""
    lines: list[DrawnLine]


def draw_chart(chart: Chart, identity: str, *, has_suites: bool = True) -> Markup:
    """A chart as an HTML figure with its caption and legend.

    Args:
        chart: At least one line with a point.
        identity: Prefix of the element ids, unique on the page.
        has_suites: Whether to name the suite in the caption.
    """
    return render_template(
        "chart.html",
        chart=_drawn(chart),
        identity=identity,
        has_suites=has_suites,
        width=WIDTH,
        height=HEIGHT,
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
        breaks=_breaks(x, y),
        warning=_warning(x, y, chart.unit),
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
        lines=[
            _drawn_line(line, i, x, y, chart.unit, with_band=len(chart.lines) <= MAX_BANDS)
            for i, line in enumerate(chart.lines)
        ],
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
        across = nice_ticks(_base(places), max(places), 10, whole)
        up = nice_ticks(_base(heights), max(heights))
    return (
        Axis(across, LEFT, WIDTH - RIGHT, _decimals(across)),
        Axis(up, HEIGHT - BOTTOM, TOP, _decimals(up)),
    )


def _base(values: Sequence[float]) -> float:
    """Where an axis starts: at zero, unless the values would take a small part of it."""
    low, high = min(values), max(values)
    return 0.0 if low >= 0 and high - low >= SMALL_PART * high else low


def _breaks(x: Axis, y: Axis) -> str:
    across = f"M{x.start + 7} {y.start + 6}l4-12m4 0l-4 12" if x.is_broken else ""
    up = f"M{x.start - 6} {y.start - 9}l12-4m0 -5l-12 4" if y.is_broken else ""
    return across + up


def _warning(x: Axis, y: Axis, unit: str) -> str:
    starts = [f"the horizontal axis starts at {x.text(x.ticks[0])}"] if x.is_broken else []
    if y.is_broken:
        sign = "%" if unit == "share" else ""
        starts.append(f"the vertical axis starts at {y.text(y.ticks[0])}{sign}")
    return " and ".join(starts).capitalize() + "." * bool(starts)


def _extent(point: Point) -> tuple[float, ...]:
    """The finite values among a point's estimate and its interval."""
    values = (point.estimate.value, point.estimate.low, point.estimate.high)
    return tuple(value for value in values if math.isfinite(value))


def _decimals(ticks: Sequence[float]) -> int:
    """The fewest decimals that write every tick exactly."""
    return next((n for n in range(6) if all(abs(round(t, n) - t) < 1e-9 for t in ticks)), 6)


def _drawn_line(line: Line, i: int, x: Axis, y: Axis, unit: str, *, with_band: bool) -> DrawnLine:
    scale = _scale(unit)
    places = [(x.place(p.at), y.place(scale * p.estimate.value)) for p in line.points]
    every = math.ceil(len(places) / MAX_MARKERS) or 1
    return DrawnLine(
        label=line.label,
        colour=f"c{i % COLOURS}",
        dash=DASHES[i % len(DASHES)],
        marker=MARKERS[i % len(MARKERS)],
        path="M" + "L".join(f"{px} {py}" for px, py in places) if len(places) > 1 else "",
        band=_band(line.points, x, y, scale) if with_band else "",
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
