"""Every recipe that is shipped can be read, and names what is there."""

from pathlib import Path

import pytest

from evaluation.recipe import EvalRecipe
from evaluation.suite import make_suite
from infra.run import RunRecipe, with_overrides
from pipeline.recipe import BuildRecipe, load_recipe
from training.recipe import TrainRecipe

ROOT = Path(__file__).parents[2]
KINDS = {"source": BuildRecipe, "probe": BuildRecipe, "build": BuildRecipe, "train": TrainRecipe}
KINDS["eval"] = EvalRecipe


@pytest.mark.parametrize("path", sorted((ROOT / "infra/recipes").glob("*.yaml")), ids=str)
def test_stages_of_a_run_are_commands_with_recipes_that_fit(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe = load_recipe(RunRecipe, path, [])
    made = set()
    for verb, *arguments in with_overrides(recipe.stages, []):
        if verb == "report":
            assert set(arguments) <= made
            continue
        found = load_recipe(KINDS[verb], arguments[0], arguments[1:])
        made.add(found.output)
        if verb == "train":
            assert found.shards in made
        if verb == "eval":
            folders = {f for name in found.checkpoints for f in found.members(name)}
            assert {folder.removesuffix("/model") for folder in folders} <= made


@pytest.mark.parametrize("path", sorted((ROOT / "evaluation/recipes").glob("*.yaml")), ids=str)
def test_suites_of_an_evaluation_are_known(path):
    recipe = load_recipe(EvalRecipe, path, [])
    for name, values in recipe.suites.items():
        suite = make_suite(values, name)
        if "data" not in values.get("edits", {}).get("pairs", {}):  # that nobody ships
            assert suite.num_samples > 0
