"""Line charts as SVG, written by hand: they scale, print, follow light and dark, and need nothing.

Lines differ in dash and marker as well as in colour, which the page's style gives by class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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
"""Three numbers of kinds without a common divisor, so 280 lines differ pairwise."""
MOST_MARKERS = 24
"""Along one line; a longer one has a marker at every second point, third and so on."""


@dataclass(frozen=True)
class Axis:
    """From values to places on the page."""

    ticks: tuple[float, ...]
    start: float
    """Place of the first tick; y goes downwards."""
    end: float
    decimals: int

    def place(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        inside = min(max(value, low), high)
        return round(self.start + (self.end - self.start) * (inside - low) / (high - low), 1)

    def text(self, tick: float) -> str:
        return f"{tick:.{self.decimals}f}"


def draw_chart(chart: Chart, identity: str) -> str:
    """A chart as an HTML figure with its caption and legend.

    Args:
        chart: At least one line with a point.
        identity: Prefix of the ids in it, unique on the page.
    """
    scale = 100 if chart.unit == "share" else 1
    x, y = _axes(chart, scale)
    title = f"{readable(chart.metric)} by {chart.by}"
    unit = ", %" if chart.unit == "share" else ""
    parts = [
        f'<figure class="chart"><figcaption>{escape(title)}'
        f" <small>{escape(chart.suite)}</small></figcaption>",
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="{identity}-title {identity}-desc">',
        f'<title id="{identity}-title">{escape(f"{chart.suite}: {title}")}</title>',
        f'<desc id="{identity}-desc">{escape(describe(chart))}</desc>',
        *_draw_axes(x, y, chart.by, readable(chart.metric) + unit),
    ]
    if chart.is_calibration:
        parts.append(f'<path class="ideal" d="M{x.start} {y.start}L{x.end} {y.end}"/>')
    parts += [_draw_band(line.points, i, x, y, scale) for i, line in enumerate(chart.lines)]
    parts += [_draw_line(line, i, x, y, chart) for i, line in enumerate(chart.lines)]
    parts.append("</svg>")
    parts.append(_draw_legend(chart))
    parts.append("</figure>")
    return "\n".join(filter(None, parts))


def describe(chart: Chart) -> str:
    """What a reader who cannot see the lines should know: where each one starts and ends."""
    said = []
    for line in chart.lines:
        if line.points:
            first, last = line.points[0], line.points[-1]
            said.append(f"{line.label}: {_say(first, chart.unit)} to {_say(last, chart.unit)}")
    return f"{readable(chart.metric)} by {chart.by}, with 95% intervals. " + "; ".join(said) + "."


def nice_ticks(low: float, high: float, most: int = 6, whole: bool = False) -> tuple[float, ...]:
    """Round numbers at equal distances from at or below `low` to at or above `high`."""
    if low == high:
        high = low + (abs(low) or 1.0)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    steps = (power * factor for factor in (1, 2, 5, 10, 20))
    tried = (_multiples(low, high, max(step, 1.0) if whole else step) for step in steps)
    return next(ticks for ticks in tried if len(ticks) <= most + 1)


def _multiples(low: float, high: float, step: float) -> tuple[float, ...]:
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(k * step, 12) for k in range(first, max(last, first + 1) + 1))


def _axes(chart: Chart, scale: float) -> tuple[Axis, Axis]:
    points = [point for line in chart.lines for point in line.points]
    places = [point.at for point in points]
    heights = [scale * v for p in points for v in _range(p)]
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


def _range(point: Point) -> tuple[float, ...]:
    found = (point.estimate.value, point.estimate.low, point.estimate.high)
    return tuple(number for number in found if math.isfinite(number))


def _decimals(ticks: Sequence[float]) -> int:
    """As few as tell the ticks apart exactly."""
    return next((n for n in range(6) if all(abs(round(t, n) - t) < 1e-9 for t in ticks)), 6)


def _draw_axes(x: Axis, y: Axis, across: str, up: str) -> list[str]:
    middle_x, middle_y = (x.start + x.end) / 2, (y.start + y.end) / 2
    rules = "".join(f"M{x.start} {y.place(t)}H{x.end}" for t in y.ticks[1:])
    small = "".join(f"M{x.place(t)} {y.start}v4" for t in x.ticks)
    out = [
        f'<path class="rule" d="{rules}"/>',
        f'<path class="axis" d="M{x.start} {y.end}V{y.start}H{x.end}{small}"/>',
    ]
    for tick in x.ticks:
        at = f'x="{x.place(tick)}" y="{y.start + 18}" text-anchor="middle"'
        out.append(f'<text class="tick" {at}>{x.text(tick)}</text>')
    for tick in y.ticks:
        at = f'x="{x.start - 7}" y="{y.place(tick) + 4}" text-anchor="end"'
        out.append(f'<text class="tick" {at}>{y.text(tick)}</text>')
    out.append(
        f'<text class="label" x="{middle_x}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(across)}</text>"
    )
    out.append(
        f'<text class="label" transform="translate(13 {middle_y}) rotate(-90)" '
        f'text-anchor="middle">{escape(up)}</text>'
    )
    return out


def _draw_band(points: Sequence[Point], i: int, x: Axis, y: Axis, scale: float) -> str:
    known = [p for p in points if math.isfinite(p.estimate.low + p.estimate.high)]
    if len(known) < 2:
        return ""
    upper = [f"{x.place(p.at)} {y.place(scale * p.estimate.high)}" for p in known]
    lower = [f"{x.place(p.at)} {y.place(scale * p.estimate.low)}" for p in reversed(known)]
    return f'<path class="band c{i % COLOURS}" d="M{"L".join(upper + lower)}z"/>'


def _draw_line(line: Line, i: int, x: Axis, y: Axis, chart: Chart) -> str:
    scale = 100 if chart.unit == "share" else 1
    places = [(x.place(p.at), y.place(scale * p.estimate.value)) for p in line.points]
    every = math.ceil(len(places) / MOST_MARKERS) or 1
    out = [f'<g class="c{i % COLOURS}">']
    if len(places) > 1:
        path = "L".join(f"{px} {py}" for px, py in places)
        out.append(f'<path class="line" {_dash(i)}d="M{path}"/>')
    for point, (px, py) in list(zip(line.points, places, strict=True))[::every]:
        said = f"{line.label}: {_say(point, chart.unit, with_interval=True)}"
        out.append(
            f'<path class="marker" transform="translate({px} {py})" d="{_marker(i)}">'
            f"<title>{escape(said)}</title></path>"
        )
    return "".join(out) + "</g>"


def _draw_legend(chart: Chart) -> str:
    items = [
        f'<li><svg viewBox="0 0 36 12" aria-hidden="true" class="c{i % COLOURS}">'
        f'<path class="line" {_dash(i)}d="M0 6H36"/>'
        f'<path class="marker" transform="translate(18 6)" d="{_marker(i)}"/></svg>'
        f"{escape(line.label)}</li>"
        for i, line in enumerate(chart.lines)
    ]
    if chart.is_calibration:
        items.append(
            '<li><svg viewBox="0 0 36 12" aria-hidden="true">'
            '<path class="ideal" d="M0 6H36"/></svg>perfectly calibrated</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _dash(i: int) -> str:
    dash = DASHES[i % len(DASHES)]
    return f'stroke-dasharray="{dash}" ' if dash else ""


def _marker(i: int) -> str:
    return MARKERS[i % len(MARKERS)]


def _say(point: Point, unit: str, with_interval: bool = False) -> str:
    scale, sign = (100, "%") if unit == "share" else (1, "")
    decimals = decimals_for(scale * abs(point.estimate.value), unit)
    value, interval = show(point.estimate, scale, decimals)
    shown = f"{value} {interval}" if with_interval and interval else value
    return f"{shown}{sign} at {point.at:.3g}"
