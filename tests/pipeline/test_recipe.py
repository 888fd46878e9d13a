"""Recipes: all that we ship, overrides, and clear errors."""

from dataclasses import replace

import pytest

from remask.pipeline.plan import make_plan
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.command import plain
from remask.pipeline.runtime.plain_yaml import write_yaml
from remask.pipeline.runtime.recipes import load_recipe
from tests.places import ROOT

RECIPES = sorted((ROOT / "pipeline" / "recipes").glob("*.yaml"))

TOY = """
output: somewhere
source: {kind: sudoku, side: 4, train: 10, held_out: 5}
trajectories: {noisy_count: [1, 4]}
"""


@pytest.fixture
def toy(tmp_path):
    path = tmp_path / "toy.yaml"
    path.write_text(TOY)
    return path


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_reads(path):
    kind = RolloutRecipe if path.stem.endswith("_rollout") else BuildRecipe
    assert isinstance(load_recipe(kind, path, []), kind)


def test_overrides_reach_into_sections(toy):
    recipe = load_recipe(
        BuildRecipe,
        toy,
        ["seed=7", "source.train=99", "trajectories.noisy_count=[2, 3]", "run.workers=0"],
    )
    assert (recipe.seed, recipe.source.train, recipe.run.workers) == (7, 99, 0)
    assert recipe.trajectories.noisy_count == (2, 3)


def test_content_leaves_out_where_and_how(toy):
    base = load_recipe(BuildRecipe, toy, [])
    moved = load_recipe(BuildRecipe, toy, ["output=elsewhere", "cache=there", "run.workers=3"])
    other = load_recipe(BuildRecipe, toy, ["trajectories.horizon=9"])
    assert base.content == moved.content != other.content
    keys = [
        make_plan(load_recipe(BuildRecipe, toy, [x])).source_key for x in ("seed=0", "replicas=3")
    ]
    assert keys[0] == keys[1]
    assert keys[0] != make_plan(load_recipe(BuildRecipe, toy, ["seed=1"])).source_key


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("gamma=1", r"toy.yaml: unknown keys \['gamma'\]; BuildRecipe takes"),
        ("source.kind=chess", r"toy.yaml: source: kind must be one of \['sudoku', 'text'"),
        ("source.sides=4", r"toy.yaml: source: unknown keys \['sides'\]; SudokuSource takes"),
        ("source.side=5", r"toy.yaml: source: side must be one of \[4, 9\], got 5"),
        ("source.train=many", "source: train must be int, got 'many'"),
        ("trajectories.horizon=1", "toy.yaml: trajectories: horizon must be at least 2"),
        ("proposal.kind=top_k", "toy.yaml: proposal: top_k needs a backbone"),
        ("replicas=0", "toy.yaml: replicas must be at least 1, got 0"),
        ("seed=-1", r"seed must lie in \[0, 2\^63\), got -1"),
        ("run.workers=-2", "run: workers must be 0 or more, got -2"),
        ("seed", "an override is section.key=value, got 'seed'"),
        ("seed.deep=1", "toy.yaml: seed must be int"),
        ("output.deep=1", "output is a value, not a section"),
        ("seed=[1", "the value is not YAML"),
    ],
)
def test_mistakes_are_named(toy, override, message):
    with pytest.raises(ValueError, match=message):
        load_recipe(BuildRecipe, toy, [override])


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="cannot read recipe .*nowhere.yaml: No such file"):
        load_recipe(BuildRecipe, tmp_path / "nowhere.yaml", [])
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ValueError, match="bad.yaml is not YAML"):
        load_recipe(BuildRecipe, tmp_path / "bad.yaml", [])
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match="expected keys and values"):
        load_recipe(BuildRecipe, tmp_path / "list.yaml", [])


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.e-3", ".001", "+1e-3", "0.1e-2", "1.0e-03"])
def test_floats_are_read_as_people_write_them(toy, text):
    recipe = load_recipe(BuildRecipe, toy, [f"trajectories.blank_share={text}"])
    assert recipe.trajectories.blank_share == 0.001
    toy.write_text(TOY.replace("noisy_count", f"blank_share: {text}, noisy_count"))
    assert load_recipe(BuildRecipe, toy, []).trajectories.blank_share == 0.001


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e3", 1000), ("+1E3", 1000), ("12e0", 12), ("010", 10), ("0o17", 15), ("0x1F", 31),
        ("+7", 7), ("10_000", 10_000),
    ],
)  # fmt: skip
def test_so_are_whole_numbers(toy, text, number):
    seed = load_recipe(BuildRecipe, toy, [f"seed={text}"]).seed
    assert (seed, type(seed)) == (number, int)


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "y", "1:30", "2024-01-01", "0b1", "="])
def test_what_only_older_yaml_reads_otherwise_is_text(toy, text):
    assert load_recipe(BuildRecipe, toy, [f"output={text}"]).output == text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed=1.0", "seed must be int, got 1.0"),
        ("seed=1e-3", "seed must be int, got 0.001"),
        ("seed=1e400", "seed=1e400': the value must be text, a finite number"),
        ("trajectories.see_end=yes", "see_end must be true or false, got 'yes'"),
        ("replicas=1:30", "replicas must be int, got '1:30'"),
    ],
)
def test_numbers_and_flags_that_are_none_are_named(toy, override, message):
    with pytest.raises(ValueError, match=message):
        load_recipe(BuildRecipe, toy, [override])


@pytest.mark.parametrize("text", ["1e3", "yes", "1:30", "010", "0o17", "2024-01-01", "null", "x"])
def test_a_recipe_that_is_written_reads_as_it_was(toy, text):
    recipe = replace(load_recipe(BuildRecipe, toy, []), output=text)
    recipe = replace(recipe, trajectories=replace(recipe.trajectories, blank_share=1e-5))
    toy.write_text(write_yaml(plain(recipe)))
    assert load_recipe(BuildRecipe, toy, []) == recipe
