"""`remask edit`: a picture and words in, a picture out."""

import dataclasses
import re

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from remask.evaluation.decoder import Decoder
from remask.evaluation.suites.image_edit import CODES, ImageEditSuite
from remask.infra.cli import main
from remask.models import HistoryConfig, LuminaConfig, LuminaMDM, load, save
from remask.pipeline.edits import ShapePairs
from remask.pipeline.edits.text import WordText
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.command import plain
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.trajectory import TrajectoryConfig
from tests.pipeline.pictures import write_tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model, a recipe for revising and one for filling in, and a pair."""
    folder = tmp_path_factory.mktemp("edit")
    pairs = ShapePairs(train=4, held_out=4)
    shown = [pairs.pair("held_out", i) for i in range(4)]
    pictures = [picture for pair in shown for picture in (pair.source, pair.target)]
    tokenizer = write_tokenizer(folder / "vq", pictures, 8, 128)
    edits = ImageEditSource(pairs=pairs, tokenizer=tokenizer, text=WordText(size=64))
    torch.manual_seed(0)
    config = LuminaConfig(
        d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, mlp_hidden_size=16,
        vocab_size=edits.vocabulary().size, mask_token_id=1, max_sequence_length=96,
        layout=edits.layout,
    )  # fmt: skip
    save(LuminaMDM(config, HistoryConfig(decay=0.5, positions="editable")), folder / "model")
    for source_in in ("canvas", "prompt"):
        source = dataclasses.replace(edits, source_in=source_in)
        rule = TrajectoryConfig(noisy_rate=(1.0, 1.0), rules={"wrong": 1.0})
        recipe = BuildRecipe(output="data", source=source, trajectories=rule)
        (folder / f"{source_in}.yaml").write_text(yaml.safe_dump(plain(recipe)))
    Image.fromarray(shown[0].source).save(folder / "scene.png")
    return folder, edits, shown[0]


def edit(folder, *more, picture="scene.png", words="make the red square blue", recipe="canvas"):
    main([
        "edit", str(folder / picture), words, "--checkpoint", str(folder / "model"),
        "--recipe", str(folder / f"{recipe}.yaml"), "--output", str(folder / "out.png"), *more,
    ])  # fmt: skip


@pytest.mark.parametrize("recipe", ["canvas", "prompt"])
def test_a_picture_is_edited_as_the_suite_does(made, capsys, recipe):
    folder, edits, pair = made
    edit(folder, "--mask", str(folder / "mask.png"), words=pair.instruction, recipe=recipe)
    line = capsys.readouterr().out
    decoder = Decoder(policy="absorbing", start="blank", max_steps=16)
    if recipe == "canvas":
        decoder = Decoder()
    table = ImageEditSuite(edits=edits).predict(load(folder / "model"), range(1), decoder)
    last = np.frombuffer(table["states"][0].as_py(), CODES)[-16:].astype(np.int64) - 1
    (expected,) = edits.decode([torch.from_numpy(last).view(4, 4)])
    assert np.array_equal(np.asarray(Image.open(folder / "out.png")), expected)
    mask = np.asarray(Image.open(folder / "mask.png"))
    assert mask.shape == (32, 32)
    remasked = np.frombuffer(table["edit_mask"][0].as_py(), np.uint8).reshape(4, 4) > 0
    assert np.array_equal(mask > 0, remasked.repeat(8, 0).repeat(8, 1))
    passes = table["forward_passes"][0].as_py()
    assert f"{remasked.sum()} of 16 cells re-masked, {passes} forward passes" in line


def test_any_picture_will_do_and_unknown_words_are_named(made, capsys):
    folder, *_ = made
    Image.new("LA", (50, 90), (200, 100)).save(folder / "grey.png")
    edit(folder, "--preset", "released", picture="grey.png", words="make the zebra zebra blue")
    assert "the model has no token for zebra\n" in capsys.readouterr().err
    with Image.open(folder / "out.png") as out:
        assert out.size == (32, 32)


def test_guidance_and_steps_can_be_set(made, capsys):
    folder, *_ = made
    edit(folder, "--max-steps", "1", "--text-guidance", "2", "--image-guidance", "1")
    passes = int(capsys.readouterr().out.split("re-masked, ")[1].split()[0])
    assert passes % 3 == 0
    assert passes <= 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"picture": "nowhere.png"}, "cannot read .*nowhere.png: No such file"),
        ({"picture": "x" * 300}, "cannot read .*xxx: File name too long"),
        ({"picture": "a\0b.png"}, r"cannot read '.*a\\x00b.png': embedded null byte"),
        ({"picture": "canvas.yaml"}, "canvas.yaml is not a picture"),
        ({"recipe": "nowhere"}, "nowhere.yaml"),
        ({"words": "?!"}, "instruction '[?]!' has no word"),
        ({"words": "blue " * 99}, "a row of .* tokens is longer than the model's 96"),
    ],
)
def test_mistakes_are_one_line(made, capsys, change, said):
    folder, *_ = made
    with pytest.raises(SystemExit, match="2"):
        edit(folder, **change)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert printed.startswith("remask edit: ")
    assert re.search(said, printed), printed


def test_a_preset_of_revision_is_refused_where_a_canvas_is_filled_in(made, capsys):
    folder, *_ = made
    with pytest.raises(SystemExit, match="2"):
        edit(folder, "--preset", "released", recipe="prompt")
    assert "--preset released revises a picture" in capsys.readouterr().err
    guidance = ("--image-guidance", "1", "--no-image")
    made_by = {}
    for way in ("masked", "absent"):
        edit(folder, *guidance, way, recipe="prompt")
        made_by[way] = (folder / "out.png").read_bytes()
    assert made_by["masked"] != made_by["absent"]


def test_another_model_is_refused(made, capsys):
    folder, *_ = made
    command = ["edit", str(folder / "scene.png"), "x", "--recipe", str(folder / "canvas.yaml")]
    with pytest.raises(SystemExit, match="2"):
        main([*command, "--checkpoint", "sudoku"])
    assert "image edits need a model of image edits, got sudoku" in capsys.readouterr().err
