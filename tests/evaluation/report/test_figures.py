"""Charts: lines from members, and SVG that can be read without seeing colour."""

import xml.etree.ElementTree as ET

import pytest

from remask.evaluation.recipe import CurveConfig, LineConfig
from remask.evaluation.report.figures import draw_chart, nice_ticks
from remask.evaluation.stats.curves import make_charts
from tests.evaluation.folders import frame, score

SVG = "{http://www.w3.org/2000/svg}"


def point(at, value, **columns):
    return score(value=value, by=columns.pop("by", "forward passes"), at=float(at), **columns)


def parsed(chart):
    """The figure as XML, which also proves that it is well formed."""
    text = str(draw_chart(chart, "c")).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    return ET.fromstring(text)


def places(chart, line=0):
    return [(p.at, pytest.approx(p.estimate.value)) for p in chart.lines[line].points]


def test_a_chart_per_suite_metric_and_what_varies_with_a_line_per_run():
    scores = frame(
        score(),
        point(1, 0.5),
        point(2, 0.9),
        point(1, 0.4, checkpoint="none"),
        point(4, 0.9, by="wrong cells"),
        point(5, 0.8, by="wrong cells"),
        point(1, 0.6, metric="valid"),
        point(2, 0.6, metric="valid"),
    )
    charts = make_charts(scores)
    assert [(c.metric, c.by) for c in charts] == [
        ("exact", "forward passes"),
        ("exact", "wrong cells"),
        ("valid", "forward passes"),
    ]
    assert [line.label for line in charts[0].lines] == ["her", "none"]
    assert places(charts[0]) == [(1, 0.5), (2, 0.9)]


def test_members_are_averaged_where_all_of_them_have_points():
    (chart,) = make_charts(
        frame(point(2, 0.6), point(1, 0.2), point(1, 0.4, member=1), point(2, 0.8, member=1))
    )
    assert chart.lines[0].label == "her (mean of 2)"
    assert places(chart) == [(1, 0.3), (2, 0.7)]


def test_a_member_that_goes_further_is_cut_to_the_others():
    rows = [point(k, 0.2 * k) for k in (1, 2)] + [point(k, 0.4, member=1) for k in (1, 2, 3)]
    (chart,) = make_charts(frame(*rows))
    assert places(chart) == [(1, 0.3), (2, 0.4)]


def test_bins_whose_means_differ_are_matched_in_order():
    rows = [point(0.1, 0.2), point(0.5, 0.6), point(0.2, 0.4, member=1), point(0.7, 0.8, member=1)]
    (chart,) = make_charts(frame(*rows))
    assert places(chart) == [(pytest.approx(0.15), 0.3), (pytest.approx(0.6), 0.7)]


def test_members_that_cannot_be_matched_have_lines_of_their_own():
    rows = [point(0.1, 0.2), point(0.2, 0.4, member=1), point(0.7, 0.8, member=1)]
    (chart,) = make_charts(frame(*rows))
    assert [line.label for line in chart.lines] == ["her, member 0", "her, member 1"]


def test_a_chart_says_what_it_shows():
    rows = [point(1, 0.5), point(4, 0.9), point(1, 0.25, checkpoint='<n> & "m"')]
    figure = parsed(make_charts(frame(*rows))[0])
    assert figure.find(f".//{SVG}title").text == "sudoku: exact by forward passes"
    described = figure.find(f".//{SVG}desc").text
    assert "her: 50.0% at 1 to 90.0% at 4" in described
    assert '<n> & "m": 25.0% at 1' in described
    texts = [t.text for t in figure.iter(f"{SVG}text")]
    assert {"forward passes", "exact, %", "0", "4", "20", "100"} <= set(texts)
    legend = ["".join(li.itertext()) for li in figure.iter("li")]
    assert legend == ["her", '<n> & "m"']


def test_lines_differ_in_dash_and_marker_not_colour_alone():
    rows = [point(k, 0.1 * i + 0.1 * k, checkpoint=f"m{i}") for i in range(5) for k in (1, 2)]
    figure = parsed(make_charts(frame(*rows))[0])
    groups = [g for g in figure.iter(f"{SVG}g") if g.get("class", "").startswith("c")]
    dashes = {g.find(f"{SVG}path[@class='line']").get("stroke-dasharray") for g in groups}
    markers = {g.find(f"{SVG}path[@class='marker']").get("d") for g in groups}
    assert (len(groups), len(dashes), len(markers)) == (5, 5, 5)


def test_points_and_bands_lie_where_the_axes_say():
    rows = [point(0, 0.0, low=0.0, high=0.5), point(10, 1.0, low=0.5, high=1.0)]
    figure = parsed(make_charts(frame(*rows))[0])
    # 52 to 506 across, 274 up to 12: the corners of the axes.
    assert figure.find(f".//{SVG}path[@class='line']").get("d") == "M52.0 274.0L506.0 12.0"
    band = figure.find(f".//{SVG}path[@class='band c0']").get("d")
    assert band == "M52.0 143.0L506.0 12.0L506.0 143.0L52.0 274.0z"


def test_calibration_has_the_diagonal_and_both_axes_whole():
    rows = [point(at, at, metric="wrong_share", by="p(MASK)") for at in (0.3, 0.4)]
    figure = parsed(make_charts(frame(*rows))[0])
    assert figure.find(f".//{SVG}path[@class='ideal']").get("d") == "M52 274L506 12"
    assert "perfectly calibrated" in ["".join(li.itertext()) for li in figure.iter("li")]


def test_a_single_point_and_unknown_intervals_are_drawn():
    nan = float("nan")
    rows = [point(3, 0.5, low=nan, high=nan), *(point(k, 0.5, checkpoint="b") for k in (1, 2))]
    figure = parsed(make_charts(frame(*rows))[0])
    lines, markers = (figure.findall(f".//{SVG}path[@class='{x}']") for x in ("line", "marker"))
    assert (len(lines), len(markers)) == (3, 5), "one of each per run in the legend"
    assert figure.find(f".//{SVG}path[@class='band c0']") is None


def test_figures_at_a_single_place_make_no_chart():
    assert make_charts(frame(point(3, 0.5), point(3, 0.6, checkpoint="none"))) == []


def test_lines_are_named_by_the_author_of_the_recipe():
    rows = [point(k, 0.1 * k, decoder=d) for d in ("rm-4", "rm-8") for k in (1, 2)]
    labels = {("sudoku", "her", "rm-4"): "four steps", ("sudoku", "her", "rm-8"): "eight steps"}
    (chart,) = make_charts(frame(*rows), labels=labels)
    assert [line.label for line in chart.lines] == ["four steps", "eight steps"]


@pytest.mark.parametrize(
    ("values", "first", "warning"),
    [
        ((0.5, 0.9), "0", None),
        ((0.90, 0.94), "89", "The vertical axis starts at 89%."),
        ((0.02, 0.03), "0", None),
    ],
)
def test_an_axis_starts_at_zero_or_is_visibly_broken(values, first, warning):
    (chart,) = make_charts(frame(*(point(k, v) for k, v in enumerate(values))))
    figure = parsed(chart)
    ticks = [t for t in figure.iter(f"{SVG}text") if t.get("text-anchor") == "end"]
    assert ticks[0].text == first
    assert (figure.find(f".//{SVG}path[@class='break']") is not None) == bool(warning)
    assert figure.findtext("p[@class='warning']") == warning


def test_bands_are_left_out_where_they_could_not_be_told_apart():
    rows = [point(k, 0.1 * i + 0.1 * k, checkpoint=f"m{i}") for i in range(5) for k in (1, 2)]
    assert 'class="band' in str(draw_chart(make_charts(frame(*rows[:8]))[0], "c"))
    assert 'class="band' not in str(draw_chart(make_charts(frame(*rows))[0], "c"))


@pytest.mark.parametrize(
    ("low", "high", "most", "whole", "expected"),
    [
        (0, 1, 6, False, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0.72, 0.94, 6, False, (0.7, 0.75, 0.8, 0.85, 0.9, 0.95)),
        (1, 3, 10, True, (1, 2, 3)),
        (4, 20, 10, True, (4, 6, 8, 10, 12, 14, 16, 18, 20)),
        (5, 5, 6, False, (5, 6, 7, 8, 9, 10)),
        (0, 0, 6, False, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    ],
)
def test_ticks_are_round_and_cover_the_values(low, high, most, whole, expected):
    assert nice_ticks(low, high, most, whole) == pytest.approx(expected)


def test_a_curve_across_decoders_has_a_point_at_the_passes_each_took():
    scores = frame(
        score(value=0.5, decoder="rm-8"),
        score(value=7.5, decoder="rm-8", metric="forward_passes", unit="number"),
        score(value=0.3, decoder="rm-4"),
        score(value=4, decoder="rm-4", metric="forward_passes", unit="number"),
    )
    line = LineConfig(label="RM", checkpoint="her", decoders=("rm-8", "rm-4", "rm-16"))
    curve = CurveConfig(suite=scores["suite"][0], metric="exact", lines=(line,))
    (chart,) = make_charts(scores, [curve])
    assert (chart.metric, chart.by, chart.unit) == ("exact", "forward passes", "share")
    assert places(chart) == [(4, 0.3), (7.5, 0.5)]
