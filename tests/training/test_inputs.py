"""Trained models say how their inputs are read, by what their data sets kept."""

import json
import shutil
from types import SimpleNamespace

import pytest
import yaml

from remask.infra.cli import main
from remask.infra.reviser import open_reviser
from remask.models import create, fingerprint, load
from remask.models.checkpoints.adapter import add_lora
from remask.models.checkpoints.input_files import INPUTS, read_input_files
from remask.pipeline import build
from remask.pipeline.inputs.describe import FOLDER, describe
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import load_recipe
from remask.training.add_inputs import main as add_inputs
from remask.training.engine import save_model
from remask.training.inputs import find_inputs
from remask.training.plan import make_plan
from remask.training.recipe import LoraConfig, TrainRecipe
from remask.training.rounds import RoundsConfig
from remask.training.world import World
from tests.revisers import PROMPT, SUMS, write_boards, write_edits, write_sums
from tests.text_folders import write_rows, write_text_tokenizer

BUILD = {
    "source": {"kind": "countdown", "signs": "given", "train": 8, "held_out": 4, "numbers": [3, 3]},
    "trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.9]},
    "run": {"workers": 0},
}
LLADA = {
    "kind": "llada", "d_model": 16, "n_layers": 1, "n_heads": 2, "n_kv_heads": 2,
    "mlp_hidden_size": 16, "vocab_size": 17, "mask_token_id": 0, "max_sequence_length": 32,
}  # fmt: skip


def write_data(folder, **changes):
    """A data set; returns its recipe."""
    (folder.parent / "build.yaml").write_text(
        yaml.safe_dump(BUILD | {"output": str(folder)} | changes)
    )
    recipe = load_recipe(BuildRecipe, folder.parent / "build.yaml", [])
    build.run(recipe)
    return recipe


@pytest.fixture
def data(tmp_path):
    write_data(tmp_path / "data")
    return tmp_path / "data"


def recipe_for(folder, **values):
    return TrainRecipe(
        **{"shards": str(folder), "output": "run", "model": LLADA, "steps": 1, "batch_size": 4}
        | values
    )


def test_the_files_come_from_the_data_set(data):
    assert find_inputs(recipe_for(data)) == (describe(SUMS), None)


def test_an_older_data_set_is_described_by_its_recipe_if_that_is_enough(data):
    shutil.rmtree(data / FOLDER)
    assert find_inputs(recipe_for(data)) == (describe(SUMS), None)
    (data / "recipe.json").unlink()
    files, note = find_inputs(recipe_for(data))
    assert files is None
    assert note is not None
    assert "will have no inputs.json: its data do not say" in note


def test_an_older_data_set_of_text_needs_a_start_with_a_tokenizer(tmp_path):
    letters = write_text_tokenizer(tmp_path / "letters")
    rows = [{"prompt": str(i), "response": "yes"} for i in range(40)]
    source = {"kind": "text", "tokenizer": letters, "data": write_rows(tmp_path / "x.jsonl", *rows)}
    write_data(tmp_path / "data", source=source)
    shutil.rmtree(tmp_path / "data" / FOLDER)
    assert find_inputs(recipe_for(tmp_path / "data"))[0] is None
    start = write_sums(tmp_path / "start")
    own = read_input_files(tmp_path / "start")
    assert find_inputs(recipe_for(tmp_path / "data", model=None, start=start)) == (own, None)


def test_damaged_files_are_a_note_and_no_end_of_training(data):
    shutil.rmtree(data / FOLDER)
    (data / "recipe.json").write_text("[")
    files, note = find_inputs(recipe_for(data))
    assert files is None
    assert "recipe.json is damaged" in str(note)


def test_rounds_alone_describe_their_source(tmp_path):
    rollout = {"source": BUILD["source"], "run": {"workers": 0}}
    rounds = RoundsConfig(rollout=rollout, share=1.0, every=2)
    start = write_sums(tmp_path / "start", is_described=False)
    recipe = recipe_for(tmp_path, shards=None, model=None, start=start, steps=2, rounds=rounds)
    assert find_inputs(recipe) == (describe(SUMS), None)


def test_a_trained_model_is_opened_without_its_data(data, tmp_path):
    plan = make_plan(recipe_for(data), World.from_environment())
    save_model(create(LLADA), tmp_path / "model", None, "# card", plan)
    shutil.rmtree(data)
    reviser = open_reviser(str(tmp_path / "model"))
    start = reviser.start({"prompt": PROMPT, "draft": "8+3=9;9-4=5"})
    assert len(start.tokens) == SUMS.length
    assert len(reviser.revise(start).result) <= 12


def test_an_adapter_and_its_merged_model_keep_them(data, tmp_path, capsys):
    start = write_sums(tmp_path / "start", is_described=False)
    lora = LoraConfig(rank=2, alpha=4.0)
    recipe = recipe_for(data, model=None, start=start, lora=lora)
    plan = SimpleNamespace(recipe=recipe, inputs=find_inputs(recipe), start=fingerprint(start))
    backbone = load(start)
    add_lora(backbone, 2, 4.0)
    save_model(backbone, tmp_path / "adapter", None, "# card", plan)  # pyright: ignore
    assert open_reviser(str(tmp_path / "adapter")).kind == "text"
    main(["merge", str(tmp_path / "adapter"), str(tmp_path / "merged")])
    assert read_input_files(tmp_path / "merged") == describe(SUMS)
    own = open_reviser(str(tmp_path / "adapter"))
    merged = open_reviser(str(tmp_path / "merged"))
    asked = {"prompt": PROMPT, "draft": "8+3=9"}
    assert merged.revise(merged.start(asked)).result == own.revise(own.start(asked)).result


def test_an_older_model_can_be_described_later(data, tmp_path, capsys):
    bare = write_sums(tmp_path / "bare", is_described=False)
    recipe = str(tmp_path / "build.yaml")
    add_inputs([bare, recipe])
    assert capsys.readouterr().out == f"written: {bare}/{INPUTS}\n"
    assert read_input_files(tmp_path / "bare") == describe(SUMS)
    assert open_reviser(bare).kind == "text"
    sums = (tmp_path / "bare" / "SHA256SUMS").read_text()
    assert f"  {INPUTS}\n" in sums
    add_inputs([bare, recipe])
    assert (tmp_path / "bare" / "SHA256SUMS").read_text() == sums


def test_an_older_model_of_edits_gets_its_image_tokenizer(tmp_path):
    folder, edits, _ = write_edits(tmp_path)
    before = read_input_files(tmp_path / "model")
    for name in before:
        (tmp_path / "model" / name).unlink()
    (tmp_path / "model" / "SHA256SUMS").unlink()
    source = {
        "kind": "image_edit", "pairs": {"kind": "shapes", "train": 4, "held_out": 4},
        "tokenizer": edits.tokenizer, "text": {"kind": "words", "size": 64},
    }  # fmt: skip
    recipe = BUILD | {"output": "data", "source": source}
    (tmp_path / "edits.yaml").write_text(yaml.safe_dump(recipe))
    add_inputs([folder, str(tmp_path / "edits.yaml")])
    assert open_reviser(folder).kind == "image_edit"
    assert json.loads((tmp_path / "model" / INPUTS).read_text()) == json.loads(before[INPUTS])


def test_a_recipe_of_another_model_is_refused_and_nothing_written(tmp_path, data, capsys):
    folder = write_boards(tmp_path / "boards")
    before = {x.name: x.read_bytes() for x in (tmp_path / "boards").iterdir()}
    with pytest.raises(SystemExit, match="2"):
        add_inputs([folder, str(tmp_path / "build.yaml")])
    assert "has ids up to 16, the model only 5 of them" in capsys.readouterr().err
    assert {x.name: x.read_bytes() for x in (tmp_path / "boards").iterdir()} == before
