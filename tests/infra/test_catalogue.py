"""`remask recipes`: every packaged recipe says what it is, and is listed, shown and copied."""

import pkgutil
import re

import pytest

from remask.infra.catalogue import find_packaged, packaged_recipes
from remask.infra.cli import main
from remask.infra.run import STAGES, RunRecipe
from remask.pipeline.runtime.recipes import find_recipe, load_recipe
from tests.places import ROOT

RECIPES = packaged_recipes()


def kind_of(verb):
    return RunRecipe if verb == "run" else pkgutil.resolve_name(STAGES[verb])


def test_all_recipes_are_listed():
    assert {x.path for x in RECIPES} == set(ROOT.glob("*/recipes/*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.full_name)
def test_a_recipe_opens_with_a_sentence_and_the_command_that_runs_it(recipe):
    first = recipe.path.read_text().splitlines()[0]
    assert re.fullmatch(r"# [A-Z].{20,95}[^.]\.", first)
    assert f"remask {recipe.verb} {recipe.full_name}" in recipe.path.read_text()
    kind = kind_of(recipe.verb)
    assert find_recipe(kind, recipe.name) == recipe.path
    assert isinstance(load_recipe(kind, recipe.path, []), kind)


def test_first_lines_of_one_verb_differ():
    lines = [(x.verb, x.summary) for x in RECIPES]
    assert len(set(lines)) == len(lines)


def test_the_list_has_a_command_and_a_summary_for_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(RECIPES)
    for recipe in RECIPES:
        (line,) = [x for x in lines if x.startswith(f"remask {recipe.verb} {recipe.name} ")]
        assert recipe.summary in line


def test_a_recipe_is_printed_as_it_is(capsys):
    main(["recipes", "show", "sudoku_small"])
    path = ROOT / "training/recipes/sudoku_small.yaml"
    assert capsys.readouterr().out == path.read_text()


def test_a_copy_overwrites_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    original = (ROOT / "training/recipes/sudoku_small.yaml").read_bytes()
    for target, written in (([], "sudoku_small.yaml"), (["mine.yaml"], "mine.yaml")):
        main(["recipes", "copy", "sudoku_small", *target])
        assert capsys.readouterr().out == f"{written}\n"
        assert (tmp_path / written).read_bytes() == original
        (tmp_path / written).write_text("changed")
        with pytest.raises(SystemExit, match="2"):
            main(["recipes", "copy", "sudoku_small", *target])
        assert f"{written} exists; choose another name" in capsys.readouterr().err
        assert (tmp_path / written).read_text() == "changed"


def test_unknown_and_ambiguous_names_are_refused(capsys):
    with pytest.raises(ValueError, match="there is no packaged recipe x; `remask recipes` lists"):
        find_packaged("x")
    message = "sudoku4 names 4 recipes, pipeline/recipes/sudoku4.yaml, .*; give one of these"
    with pytest.raises(ValueError, match=message):
        find_packaged("sudoku4")
    assert find_packaged("infra/recipes/sudoku4.yaml").verb == "run"
    with pytest.raises(SystemExit, match="2"):
        main(["recipes", "copy", "sudoku_small", "no/such/folder/x.yaml"])
    assert "cannot write no/such/folder/x.yaml: No such file" in capsys.readouterr().err
