"""Tables of scores: means over members, the best, published figures, the terminal."""

import io
import math

import pytest
from rich.console import Console

from remask.evaluation.recipe import RowConfig, TableConfig
from remask.evaluation.stats.members import ScoreEstimate, combine, student_t
from remask.evaluation.stats.tables import Cell, make_tables, print_table
from tests.evaluation.folders import frame, score


def printed(table, width=120):
    console = Console(file=io.StringIO(), width=width)
    print_table(console, table)
    return console.file.getvalue()


def config(*rows, metrics=("exact",), **values):
    return TableConfig(title="T", suite="sudoku", metrics=metrics, rows=rows, **values)


def run_row(checkpoint, quoted=None):
    return RowConfig(label=checkpoint, checkpoint=checkpoint, decoder="rm", quoted=quoted)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (9, 2.262), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_student_t_is_the_printed_table(freedom, expected):
    assert student_t(freedom) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("freedom", [1, 2, 5, 8])
def test_student_t_holds_95_percent_of_the_density(freedom):
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    n, t = 20_000, student_t(freedom)
    middles = ((k + 0.5) * t / n for k in range(n))
    mass = 2 * sum((1 + x * x / freedom) ** (-(freedom + 1) / 2) for x in middles) * scale * t / n
    assert mass == pytest.approx(0.95, abs=1e-6)


def test_one_member_keeps_its_own_interval():
    assert combine(frame(score(value=0.9, low=0.88, high=0.91))) == ScoreEstimate(0.9, 0.88, 0.91)


def test_several_members_are_a_mean_with_their_own_spread():
    rows = [score(value=v, member=i) for i, v in enumerate((0.90, 0.92, 0.94))]
    estimate = combine(frame(*rows))
    reach = 4.303 * 0.02 / math.sqrt(3)  # by hand: standard deviation 0.02, two degrees
    assert estimate.members == 3
    assert estimate.value == pytest.approx(0.92)
    assert (estimate.low, estimate.high) == pytest.approx((0.92 - reach, 0.92 + reach), abs=1e-4)


def test_an_interval_of_shares_stays_between_none_and_all():
    estimate = combine(frame(score(value=0.0), score(value=0.99, member=1)))
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_members_without_a_value_do_not_count():
    estimate = combine(frame(score(value=math.nan), score(value=0.5, member=1)))
    assert (estimate.value, estimate.members) == (0.5, 1)
    assert combine(frame(score(value=math.nan))) is None


def test_a_recipe_without_tables_gets_one_per_suite_with_all_runs():
    scores = frame(
        score(),
        score("valid", 0.95),
        score(checkpoint="none", value=0.8),
        score(suite="other"),
        score("exact", 0.3, by="forward passes", at=1.0),
    )
    first, second = make_tables(scores)
    assert (first.title, second.title) == ("sudoku", "other")
    assert [c.heading for c in first.columns] == ["exact % ↑", "valid % ↑"]
    assert [r.label for r in first.rows] == ["her", "none"]
    assert first.rows[1].cells[1] == Cell()


def test_the_best_is_among_our_rows_and_in_the_right_direction():
    scores = frame(
        score(value=0.9),
        score("replay", 0.002, better="lower"),
        score(checkpoint="none", value=0.8),
        score("replay", 0.001, checkpoint="none", better="lower"),
    )
    rows = [run_row("her"), run_row("none"), RowConfig(label="paper", quoted=(99.0, 0.0))]
    (table,) = make_tables(scores, [config(*rows, metrics=("exact", "replay"))])
    assert [[cell.is_best for cell in row.cells] for row in table.rows] == [
        [True, False],
        [False, True],
        [False, False],
    ]


def test_figures_that_look_equal_share_the_best_mark():
    scores = frame(
        *(score(value=v, checkpoint=c) for c, v in (("a", 0.9), ("b", 0.90001), ("c", 0.5))),
        *(score("valid", 0.9, checkpoint=c) for c in "abc"),
        *(
            score("depth", v, checkpoint=c, better="neither")
            for c, v in zip("abc", (0.1, 0.2, 0.3), strict=True)
        ),
    )
    (table,) = make_tables(scores)
    best = [[cell.is_best for cell in row.cells] for row in table.rows]
    assert best == [[True, False, False], [True, False, False], [False, False, False]]


def test_decimals_are_those_of_the_published_figures():
    scores = frame(
        score(value=0.9344),
        score("replay", 0.0006, better="lower", low=0.0001, high=0.0011),
        score("conflicts", 0.2361, unit="number", better="lower", low=0.2, high=0.3),
    )
    quoted = (93.4, 0.03, 0.236)
    rows = [run_row("her", quoted), RowConfig(label="hr", quoted=(91.4, 0.07, 0.3))]
    (table,) = make_tables(scores, [config(*rows, metrics=("exact", "replay", "conflicts"))])
    ours, paper = table.rows
    assert [(c.text, c.interval, c.quoted) for c in ours.cells] == [
        ("93.4", "[92.4, 94.4]", "93.4"),
        ("0.06", "[0.01, 0.11]", "0.03"),
        ("0.236", "[0.200, 0.300]", "0.236"),
    ]
    assert [(c.text, c.quoted) for c in paper.cells] == [("", "91.4"), ("", "0.07"), ("", "0.300")]


def test_a_row_that_was_not_run_is_empty():
    (table,) = make_tables(frame(score()), [config(run_row("her"), run_row("none"))])
    assert table.rows[1].cells == (Cell(),)
    assert "–" in printed(table)


def test_an_unknown_metric_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no metric 'exakt'; it has \['exact'\]"):
        make_tables(frame(score()), [config(run_row("her"), metrics=("exakt",))])


def test_published_figures_alone_make_a_table_too():
    (table,) = make_tables(frame(), [config(RowConfig(label="paper", quoted=(93.4,)))])
    assert table.rows[0].cells[0].quoted == "93.4"


def test_the_terminal_shows_values_intervals_and_published_figures():
    scores = frame(
        score(), *(score(checkpoint="[b]none", value=v, member=v > 0.8) for v in (0.8, 0.82))
    )
    rows = [run_row("her", (93.4,)), run_row("[b]none", (82.4,))]
    (table,) = make_tables(scores, [config(*rows, note="Quoted: [i]the paper")])
    out = printed(table)
    assert "*90.0 [89.0, 91.0]     93.4" in out
    assert "[b]none (mean of 2)" in out
    assert "Quoted: [i]the paper" in out


def test_a_narrow_terminal_has_intervals_below_their_values():
    (table,) = make_tables(frame(score(), score("valid", 0.95)))
    out = printed(table, width=42)
    assert "[89.0, 91.0]   [94.0, 96.0]" in out


def test_many_metrics_become_rows():
    (table,) = make_tables(frame(*(score(f"m{i}") for i in range(9))))
    headings, lines = table.grid()
    assert headings == ["her"]
    assert [label for label, _ in lines] == [f"m{i} % ↑" for i in range(9)]
