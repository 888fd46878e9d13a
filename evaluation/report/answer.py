"""The picture that opens the report: a bar per run, from zero, with intervals and the ceiling.

Places are percentages of the picture's width, so that it fits any screen while its text keeps its
size.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from remask.evaluation.report.figures import nice_ticks
from remask.evaluation.report.templates import render_template
from remask.evaluation.stats.headline import Headline
from remask.evaluation.stats.verdict import Bar

VERDICTS = {"yes": "Yes.", "no": "No.", "unclear": "Not clearly."}
QUESTION, STATEMENT = "Did revision help?", "What revision reached"
MEANINGS = {
    "yes": "Yes means that its 95% interval lies above all those it is compared with.",
    "no": "No means that the 95% interval of another lies above its own.",
    "unclear": "Not clearly means that its 95% interval overlaps another.",
}


@dataclass(frozen=True)
class DrawnBar:
    """A bar as `answer.html` takes it; places are percentages of the width."""

    bar: Bar
    width: float
    low: float
    high: float
    """Ends of the interval; equal if it is unknown."""
    quoted: float | None


def draw_answer(headline: Headline, title: str) -> Markup:
    """The sentence and the picture as HTML.

    Args:
        headline: What they say.
        title: Name of the evaluation; empty if the page shows a single one.
    """
    scale = 100 if headline.unit == "share" else 1
    ticks = nice_ticks(0, _largest(headline, scale), 5)

    def place(value: float) -> float:
        return round(100 * min(max(value, 0), ticks[-1]) / ticks[-1], 2)

    return render_template(
        "answer.html",
        headline=headline,
        title=title,
        verdict=VERDICTS.get(headline.verdict or "", ""),
        meaning=MEANINGS.get(headline.verdict or "", ""),
        unit=", %" if headline.unit == "share" else "",
        bars=[_drawn(bar, place, scale) for bar in headline.bars],
        ceiling=None if headline.ceiling is None else place(scale * headline.ceiling.value),
        ticks=[(place(tick), f"{tick:g}") for tick in ticks],
        has_quoted=any(math.isfinite(bar.quoted) for bar in headline.bars),
    )


def heading_of(headlines: Sequence[Headline]) -> str:
    """The question, if any evaluation answers it."""
    return QUESTION if any(x.verdict for x in headlines) else STATEMENT


def _largest(headline: Headline, scale: int) -> float:
    known = [x.estimate for x in headline.bars if x.estimate]
    values = [scale * v for x in known for v in (x.value, x.high) if math.isfinite(v)]
    values += [x.quoted for x in headline.bars if math.isfinite(x.quoted)]
    if headline.ceiling is not None:
        values.append(scale * headline.ceiling.value)
    return max(0.0, *values)


def _drawn(bar: Bar, place: Callable[[float], float], scale: int) -> DrawnBar:
    quoted = place(bar.quoted) if math.isfinite(bar.quoted) else None
    if bar.estimate is None:
        return DrawnBar(bar, 0, 0, 0, quoted)
    ends = (bar.estimate.low, bar.estimate.high)
    low, high = ends if all(map(math.isfinite, ends)) else (bar.estimate.value,) * 2
    width = place(scale * bar.estimate.value)
    return DrawnBar(bar, width, place(scale * low), place(scale * high), quoted)
