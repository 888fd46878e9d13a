"""Every recipe that is shipped can be read, and names what is there."""

from pathlib import Path

import pytest

from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.suites.text_suite import TextSuite
from remask.infra.run import RunRecipe, find_recipes, with_overrides
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.recipes import load_recipe, split_section
from remask.training.recipe import TrainRecipe
from remask.training.vq import VQRecipe
from tests.places import ROOT

KEYS = ("suites", "checkpoints", "decoders")


@pytest.mark.parametrize("path", sorted((ROOT / "infra/recipes").glob("*.yaml")), ids=str)
def test_stages_of_a_run_are_commands_with_recipes_that_fit(path, tmp_path, monkeypatch):
    """From any folder: the stages' recipes are packaged too."""
    monkeypatch.chdir(tmp_path)
    run = load_recipe(RunRecipe, path, [])
    own = {name: f"{path}:{name}" for name in run.recipes}
    commands = with_overrides(run.stages, [], own)
    made = set()
    for (verb, *arguments), recipe in zip(*find_recipes(commands, path.parent, own), strict=True):
        if verb == "report":
            assert set(arguments) <= made
            continue
        assert split_section(Path(arguments[0]))[0] in ROOT.glob("*/recipes/*.yaml")
        made.add(recipe.output)
        if verb == "train":
            assert {x.uri for x in recipe.shard_sets} <= made
        if verb == "eval":
            folders = {f for name in recipe.checkpoints for f in recipe.members(name)}
            published = {folder for folder in folders if folder.startswith("weights/")}
            assert {folder.removesuffix("/model") for folder in folders - published} <= made


def test_llada_decodes_the_problems_that_its_shards_have():
    """The same source, so that no held-out problem is decoded, and rows enough for a round."""
    path = ROOT / "infra/recipes/llada.yaml"
    commands = with_overrides(load_recipe(RunRecipe, path, []).stages, [])
    _, recipes = find_recipes(commands, path.parent)
    sources = {x.output: x.source for x in recipes if isinstance(x, BuildRecipe)}
    own = [x for x in recipes if isinstance(x, TrainRecipe) and x.rounds]
    assert [x.shards for x in own] == ["runs/llada_math/data", "runs/llada_mbpp/data"]
    for recipe in own:
        rollout = recipe.round_recipe(0)
        assert rollout.source == sources[recipe.shards]
        assert rollout.checker is not None
        decodes = recipe.rounds.shards * rollout.examples_per_shard
        assert decodes * rollout.looks >= recipe.rounds.every * recipe.rows_per_set[-1]


@pytest.mark.parametrize("room", ["pipeline", "training"])
def test_every_recipe_fits_its_dataclass(room):
    paths = sorted((ROOT / room / "recipes").glob("*.yaml"))
    assert paths
    for path in paths:
        kind = {"pipeline": BuildRecipe, "training": TrainRecipe}[room]
        if path.stem.endswith("_vq"):
            kind = VQRecipe
        elif path.stem.endswith("_rollout"):
            kind = RolloutRecipe
        assert load_recipe(kind, path, []).output.startswith("runs/")


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_presets_are_a_key_of_a_recipe_or_of_the_command_line(preset):
    build = load_recipe(BuildRecipe, ROOT / "pipeline/recipes/llada_math.yaml", [
        f"proposal.preset={preset}",
    ])  # fmt: skip
    assert (build.proposal.k, build.proposal.candidates) == {
        "paper": (50, "softmax"), "released": (8, "uniform")
    }[preset]  # fmt: skip
    train = load_recipe(TrainRecipe, ROOT / "training/recipes/llada_math_full.yaml", [
        f"history={{preset: {preset}}}",
    ])  # fmt: skip
    assert train.history.norm == {"paper": "rms", "released": "residual"}[preset]


@pytest.mark.parametrize("path", sorted((ROOT / "evaluation/recipes").glob("*.yaml")), ids=str)
def test_suites_of_an_evaluation_are_known(path):
    recipe = load_recipe(EvalRecipe, path, [])
    for name, suite in recipe.make_suites().items():
        is_ours = "data" not in recipe.suites[name].get("edits", {}).get("pairs", {})
        if is_ours and not isinstance(suite, TextSuite):  # whose data are not shipped
            assert suite.num_samples > 0
    for table in recipe.tables:
        for row in table.rows:
            chosen = (table.suite, row.checkpoint, row.decoder)
            assert any(
                all(x in (getattr(run, kind) or (x,)) for kind, x in zip(KEYS, chosen, strict=True))
                for run in recipe.runs
            ), f"{table.title}: {row.label} is never run"
