"""Recipes are found by path, beside the recipe that names them, or by a packaged name."""

import dataclasses
from pathlib import Path

import pytest

from remask.evaluation.recipe import EvalRecipe
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.recipes import find_recipe, load_recipe, make_recipe
from remask.training.recipe import TrainRecipe
from remask.training.vq import VQRecipe
from tests.places import ROOT

PACKAGED = ROOT / "pipeline/recipes/sudoku4.yaml"
TOY = {
    "output": "data",
    "source": {"kind": "sudoku", "side": 4, "train": 10, "held_out": 5},
    "trajectories": {"noisy_count": [1, 4]},
}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working directory far from the clone."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["sudoku4", "sudoku4.yaml", "pipeline/recipes/sudoku4.yaml"])
def test_packaged_recipes_are_found_from_any_folder(name, elsewhere):
    assert find_recipe(BuildRecipe, name) == PACKAGED
    assert load_recipe(BuildRecipe, name, ["seed=3"]).seed == 3


def test_a_name_means_the_recipe_of_its_own_kind(elsewhere):
    rooms = {TrainRecipe: "training", VQRecipe: "training", EvalRecipe: "evaluation"}
    for kind, room in rooms.items():
        assert find_recipe(kind, "sudoku4") == ROOT / room / "recipes/sudoku4.yaml"
    assert find_recipe(BuildRecipe, "training/recipes/sudoku4.yaml") == Path(
        "training/recipes/sudoku4.yaml"
    )


def test_a_path_comes_first_then_a_file_beside_then_the_packaged_one(elsewhere):
    beside = elsewhere / "beside"
    beside.mkdir()
    assert find_recipe(BuildRecipe, "sudoku4.yaml", beside) == PACKAGED
    (beside / "sudoku4.yaml").touch()
    assert find_recipe(BuildRecipe, "sudoku4.yaml", beside) == beside / "sudoku4.yaml"
    (elsewhere / "sudoku4.yaml").touch()
    assert find_recipe(BuildRecipe, "sudoku4.yaml", beside) == Path("sudoku4.yaml")


def test_a_folder_of_the_name_does_not_hide_a_packaged_recipe(elsewhere):
    (elsewhere / "sudoku4").mkdir()
    assert find_recipe(BuildRecipe, "sudoku4") == PACKAGED


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sudoku5", "cannot read recipe sudoku5: No such file.* similar name are sudoku, sudoku4"),
        ("x/sudoku4.yml", "cannot read recipe x/sudoku4.yml: No such file or directory; packaged"),
        ("qqqqqqqq", "qqqqqqqq: No such file or directory; `remask recipes` lists the packaged"),
        ("n" * 300, "File name too long"),
        ("\0", "null byte"),
    ],
)
def test_unknown_names_are_refused_with_near_ones(name, message, elsewhere):
    with pytest.raises(ValueError, match=message):
        load_recipe(BuildRecipe, name, [])


def test_a_mapping_a_dataclass_and_a_file_make_the_same_recipe(elsewhere):
    recipe = make_recipe(BuildRecipe, TOY, {})
    assert make_recipe(BuildRecipe, recipe, {}) is recipe
    assert make_recipe(BuildRecipe, recipe, {"seed": 0}) == recipe
    assert make_recipe(BuildRecipe, Path("sudoku4"), {}) == load_recipe(BuildRecipe, "sudoku4", [])


def test_keywords_override_keys_of_sections(elsewhere):
    recipe = make_recipe(
        BuildRecipe,
        "sudoku4",
        {
            "output": elsewhere / "there",
            "source__train": 7,
            "run": {"workers": 0},
            "trajectories.noisy_count": (2, 3),
        },
    )
    assert recipe.output == str(elsewhere / "there")
    assert (recipe.source.train, recipe.source.side, recipe.run.workers) == (7, 4, 0)
    assert recipe.trajectories.noisy_count == (2, 3)


def test_overrides_leave_what_was_given_alone():
    values = {**TOY, "source": dict(TOY["source"])}
    make_recipe(BuildRecipe, values, {"source__train": 7})
    assert values == TOY


def test_a_section_that_is_null_can_be_given_keys():
    base = {"shards": "data", "output": "run", "start": "model", "steps": 1}
    recipe = make_recipe(TrainRecipe, base, {})
    assert recipe.lora is None
    assert make_recipe(TrainRecipe, recipe, {"lora__rank": 4}).lora.rank == 4


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        (5, {}, "a recipe is a path, a name, a mapping or a BuildRecipe, got int"),
        (TOY, {"gamma": 1}, r"BuildRecipe: unknown keys \['gamma'\]"),
        (TOY, {"seed__x": 1}, "BuildRecipe: seed must be int"),
        ({**TOY, "seed": 3}, {"seed__x": 1}, "override seed__x: seed is a value, not a section"),
        (TOY, {"source__train": "many"}, "BuildRecipe: source: train must be int, got 'many'"),
    ],
)
def test_wrong_values_from_python_are_named(recipe, overrides, message):
    with pytest.raises(ValueError, match=message):
        make_recipe(BuildRecipe, recipe, overrides)


@pytest.mark.parametrize(
    ("kind_of_room", "room"),
    [(BuildRecipe, "pipeline"), (TrainRecipe, "training"), (EvalRecipe, "evaluation")],
)
def test_every_packaged_recipe_survives_the_way_through_plain_values(kind_of_room, room):
    paths = [x for x in (ROOT / room / "recipes").glob("*.yaml") if not x.stem.endswith("_vq")]
    assert paths
    for path in paths:
        kind = RolloutRecipe if path.stem.endswith("_rollout") else kind_of_room
        recipe = load_recipe(kind, path, [])
        assert make_recipe(kind, dataclasses.asdict(recipe), {}) == recipe


EVALUATION = "output: out\nsuites: {x: {kind: sudoku}}\ncheckpoints: {rm: sudoku}\n"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Boards: ours and\n# theirs. And more.\n#   remask eval\n", "Boards: ours and theirs"),
        ("# A title.\n", "A title"),
        ("\n# not at the top\n", "mine"),
        ("", "mine"),
        ("# A comment.\ntitle: The author's\n", "The author's"),
        ("# A comment.\ntitle: ''\n", "A comment"),
        (f"# {'long ' * 50}\n", f"{('long ' * 23).strip()} …"),
    ],
)
def test_a_title_defaults_to_the_opening_comment_or_the_file(tmp_path, text, title):
    path = tmp_path / "mine.yaml"
    path.write_text(text + EVALUATION)
    assert load_recipe(EvalRecipe, path, []).title == title
    assert make_recipe(EvalRecipe, path, {}).title == title
    assert load_recipe(EvalRecipe, path, ["title=other"]).title == "other"
