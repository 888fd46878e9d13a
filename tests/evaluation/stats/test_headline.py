"""Did revision help? The verdict and the sentence, from scores written by hand."""

import pytest

from remask.evaluation.recipe import HeadlineConfig, RowConfig, TableConfig
from remask.evaluation.stats.headline import make_headline
from tests.evaluation.folders import frame, score

REVISION, FILL = {"policy": "revision"}, {"policy": "absorbing"}
SETTINGS = {
    ("sudoku", "base", "fill"): FILL,
    ("sudoku", "sft", "fill"): FILL,
    ("sudoku", "told", "fill"): FILL | {"start": "oracle"},
    ("sudoku", "rm", "rm"): REVISION,
}


def table(*names, metrics=("exact",)):
    rows = [RowConfig(label=x.upper(), checkpoint=x, decoder=decoder(x)) for x in names]
    return TableConfig(title="T", suite="sudoku", metrics=metrics, rows=tuple(rows))


def decoder(checkpoint):
    return "rm" if checkpoint == "rm" else "fill"


def figures(**values):
    return [score(value=v, checkpoint=c, decoder=decoder(c)) for c, v in values.items()]


def headline(rows, tables, config=None):
    return make_headline(frame(*rows), config, tables, SETTINGS)


def said(made):
    return "".join(text for text, _ in made.sentence)


@pytest.mark.parametrize(
    ("base", "sft", "verdict"),
    [(0.3, 0.5, "yes"), (0.3, 0.89, "unclear"), (0.95, 0.3, "no"), (0.885, 0.91, "unclear")],
)
def test_the_verdict_is_by_intervals(base, sft, verdict):
    made = headline(figures(base=base, sft=sft, rm=0.9), [table("base", "sft", "rm")])
    assert made.verdict == verdict


def test_less_can_be_better():
    rows = [x | {"better": "lower", "unit": "number"} for x in figures(base=3.0, rm=0.5)]
    assert headline(rows, [table("base", "rm")]).verdict == "yes"


def test_a_run_that_is_told_what_is_wrong_is_no_rival():
    made = headline(figures(base=0.3, told=0.99, rm=0.9), [table("base", "told", "rm")])
    assert made.verdict == "yes"
    assert [bar.role for bar in made.bars] == ["other", "told", "answer"]
    assert "TOLD" not in said(made)


def test_a_canvas_filled_in_by_two_phases_does_not_revise():
    fill = {("sudoku", "base", "fill"): {"policy": "two_phase", "start": "blank"}}
    rows = figures(base=0.3, rm=0.9)
    made = make_headline(frame(*rows), None, [table("base", "rm")], SETTINGS | fill)
    assert [bar.role for bar in made.bars] == ["other", "answer"]


def test_published_figures_alone_have_no_bar_and_are_no_rival():
    paper = RowConfig(label="paper", quoted=(93.4,))
    config = HeadlineConfig(suite="sudoku", rows=(paper, *table("base", "rm").rows))
    made = headline(figures(base=0.3, rm=0.9), [table("base", "rm")], config)
    assert (made.bars[0].quoted, made.bars[0].text) == (93.4, "")
    assert "paper" not in said(made)


def test_a_long_picture_keeps_the_run_in_question_and_all_rivals_count():
    names = [f"m{i:02}" for i in range(20)]
    settings = {("sudoku", x, "fill"): FILL for x in names} | SETTINGS
    rows = figures(**dict.fromkeys(names[:-1], 0.3), m19=0.95, rm=0.9)
    made = make_headline(frame(*rows), None, [table(*names, "rm")], settings)
    assert len(made.bars) == 12
    assert made.bars[-1].label == "RM"
    assert made.verdict == "no"


def test_without_anything_to_compare_with_there_is_no_verdict():
    made = headline(figures(rm=0.9), [table("rm")])
    assert made.verdict is None
    assert said(made) == "With RM, 90.0% of 1,000 boards are solved."


def test_what_was_given_and_the_ceiling_are_those_of_the_run():
    own = {"checkpoint": "rm", "decoder": "rm"}
    extra = [score("as_given", 0.1, **own), score("ceiling", 0.95, **own)]
    extra += [score("as_given", 0.2, checkpoint="base", decoder="fill")]
    made = headline([*figures(base=0.3, rm=0.9), *extra], [table("base", "rm")])
    assert [(bar.label, bar.text) for bar in made.bars] == [
        ("as given", "10.0%"), ("BASE", "30.0%"), ("RM", "90.0%"),
    ]  # fmt: skip
    assert made.ceiling.value == 0.95
    assert said(made).endswith("No reviser can be expected to exceed 95.0%.")


def test_many_rivals_are_summed_up_by_the_best():
    names = ["base", "sft", "c", "d"]
    rows = figures(base=0.1, sft=0.4, c=0.2, d=0.3, rm=0.9)
    settings = SETTINGS | {("sudoku", x, "fill"): FILL for x in names}
    made = make_headline(frame(*rows), None, [table(*names, "rm")], settings)
    assert said(made) == (
        "With RM, 90.0% of 1,000 boards are solved; 40.0% at best without it (SFT)."
    )


def test_the_recipe_chooses_metric_and_rows():
    rows = figures(base=0.3, rm=0.9) + [
        x | {"metric": "conflicts", "unit": "number", "better": "lower"}
        for x in figures(base=2.5, rm=0.25)
    ]
    chosen = (
        RowConfig(label="before", checkpoint="base", decoder="fill", quoted=(3.0,)),
        RowConfig(label="after", checkpoint="rm", decoder="rm"),
    )
    config = HeadlineConfig(suite="sudoku", metric="conflicts", rows=chosen)
    made = headline(rows, [table("base", "rm")], config)
    assert said(made) == "With after, conflicts is 0.250; 2.500 with before."
    assert (made.bars[0].quoted, made.verdict) == (3.0, "yes")
    wrong = HeadlineConfig(suite="sudoku", metric="exakt")
    with pytest.raises(ValueError, match=r"has no metric 'exakt'; it has \['exact', 'conflicts'\]"):
        headline(rows, [table("base", "rm")], wrong)


def test_an_evaluation_without_a_reviser_has_no_headline():
    assert headline(figures(base=0.3, sft=0.4), [table("base", "sft")]) is None
    assert make_headline(frame(), None, [], {}) is None


def test_a_recipe_without_tables_has_its_default_rows():
    made = headline(figures(base=0.3, rm=0.9), [])
    assert [bar.label for bar in made.bars] == ["base, fill", "rm, rm"]


def test_a_headline_quotes_one_figure():
    row = RowConfig(label="x", quoted=(1.0, 2.0))
    with pytest.raises(ValueError, match="row 'x' quotes 2 figures for one metric"):
        HeadlineConfig(suite="sudoku", rows=(row,))
