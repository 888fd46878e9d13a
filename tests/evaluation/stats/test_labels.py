"""What runs are called."""

from remask.evaluation.recipe import HeadlineConfig, RowConfig, TableConfig
from remask.evaluation.stats.labels import label_of, run_labels
from tests.evaluation.folders import frame, score


def rows(*labels):
    return tuple(RowConfig(label=x, checkpoint=c, decoder=d) for x, c, d in labels)


def table(*labels):
    return TableConfig(title="T", suite="sudoku", metrics=("exact",), rows=rows(*labels))


SCORES = frame(
    score(checkpoint="base", decoder="fill-4"),
    score(checkpoint="base", decoder="fill-8"),
    score(checkpoint="rm", decoder="rm-8"),
)


def test_the_first_table_with_a_row_for_a_run_names_it():
    sections = (
        table(("Base", "base", "fill-4"), ("RM + HR", "rm", "rm-8")),
        table(("Base, 8 steps", "base", "fill-8"), ("the same", "rm", "rm-8")),
        HeadlineConfig(suite="sudoku", rows=rows(("RM", "rm", "rm-8"))),
    )
    labels = run_labels(SCORES, sections)
    assert list(labels.values()) == ["Base", "Base, 8 steps", "RM + HR"]


def test_equal_labels_are_told_apart():
    labels = run_labels(SCORES, (table(("Base", "base", "fill-4"), ("Base", "base", "fill-8")),))
    assert list(labels.values()) == ["Base (fill-4)", "Base (fill-8)", "rm, rm-8"]


def test_without_rows_the_name_is_what_differs():
    assert list(run_labels(frame(score(), score(checkpoint="none"))).values()) == ["her", "none"]
    assert list(run_labels(frame(score(), score(decoder="p2"))).values()) == ["rm", "p2"]
    assert label_of({}, ("sudoku", "her", "rm")) == "her, rm"
