"""The checklist of infra/README.md for a new verb, followed for a toy one."""

import sys

import pytest

from remask.infra.cli import VERBS, main
from remask.infra.run import STAGES

TOY = '''
"""Count to a number.

    remask toy small
    python -m toy_stage RECIPE
"""

from dataclasses import dataclass
from typing import Annotated

from remask.models.ranges import Range, check_fields
from remask.pipeline.runtime.command import main_for
from remask.pipeline.runtime.progress import Meter, Summary


@dataclass(frozen=True, kw_only=True)
class ToyRecipe:
    """How far to count."""

    output: str
    limit: Annotated[int, Range("[1, inf)")] = 3

    def __post_init__(self) -> None:
        check_fields(self)


def run(recipe: ToyRecipe) -> Summary:
    with Meter("toy", recipe.limit) as meter:
        for _ in range(recipe.limit):
            meter.add(rows=1, tokens=1)
    return meter.summary(recipe.limit, recipe.output)


def main(argv: list[str] | None = None) -> None:
    main_for("toy", __doc__, run, lambda recipe: range(recipe.limit), argv, ToyRecipe)
'''
RECIPE = """# The toy counts to two, which takes no time at all.
#   remask toy small
output: nowhere
limit: 2
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_stage.py").write_text(TOY)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "small.yaml").write_text(RECIPE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_stage", raising=False)
    monkeypatch.setitem(VERBS, "toy", "toy_stage")
    monkeypatch.setitem(STAGES, "toy", "toy_stage:ToyRecipe")


def test_a_new_verb_takes_packaged_recipes_overrides_and_a_dry_run(toy, capsys):
    main(["toy", "small"])
    assert capsys.readouterr().out.startswith("toy: 2 of 2 units made, 2 rows")
    main(["toy", "small", "limit=5", "--dry-run"])
    assert capsys.readouterr().out == "output: nowhere\nlimit: 5\n# toy: 5 units\n"
    with pytest.raises(SystemExit, match="2"):
        main(["toy", "small", "limit=0"])
    assert "remask toy: " in (error := capsys.readouterr().err)
    assert "limit must be at least 1, got 0" in error
    with pytest.raises(SystemExit, match="2"):
        main(["toy", "smal"])
    assert "packaged recipes of a similar name are small" in capsys.readouterr().err


def test_a_new_verb_is_a_stage_of_a_run(toy, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("stages: [toy small limit=4]")
    main(["run", str(tmp_path / "run.yaml"), "toy.limit=6", "--dry-run"])
    recipe = tmp_path / "recipes" / "small.yaml"
    assert capsys.readouterr().out == f"remask toy {recipe} limit=4 limit=6\n"
