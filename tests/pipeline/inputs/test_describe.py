"""What data sets and models keep of a source: enough to read inputs, and nothing of its data."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from remask.models import load
from remask.models.checkpoints.input_files import IMAGES, INPUTS, read_input_files
from remask.models.checkpoints.inputs_file import parse_inputs
from remask.models.text.prompts import load_tokenizer
from remask.pipeline import build, open_manifest
from remask.pipeline.edits import EmojiPairs
from remask.pipeline.edits.text import PublishedText, WordText
from remask.pipeline.inputs.describe import FOLDER, describe, read_description
from remask.pipeline.inputs.image_edit import EditInputs, EditReader, PictureSize
from remask.pipeline.inputs.registry import inputs_from
from remask.pipeline.inputs.sudoku import SudokuInputs
from remask.pipeline.inputs.text import TextInputs
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import load_recipe
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.sources.countdown import ALPHABET, CountdownSource, encode
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource
from tests.pipeline.pictures import png, write_pngs
from tests.revisers import write_edits
from tests.text_folders import MASK, write_rows, write_text_tokenizer

BUILD = {
    "output": "data",
    "source": {"kind": "countdown", "train": 8, "held_out": 4, "numbers": [3, 3]},
    "trajectories": {"horizon": 4, "noisy_rate": [0.2, 0.9]},
    "run": {"workers": 0},
}


def described(source):
    """What inputs.json says of a source."""
    files = describe(source)
    assert files is not None
    return inputs_from(parse_inputs(files[INPUTS], INPUTS), INPUTS), files


def test_each_kind_of_source_is_described():
    inputs, files = described(SudokuSource(side=4, clues=(4, 8)))
    assert (inputs, list(files)) == (SudokuInputs(side=4), [INPUTS])
    inputs, files = described(CountdownSource(numbers=(3, 5)))
    length = CountdownSource(numbers=(3, 5)).length
    assert inputs == TextInputs(max_length=length, eos_bucket=length)
    assert "tokenizer.json" in files


def test_countdown_has_a_token_per_character_with_its_ids(tmp_path):
    _, files = described(CountdownSource())
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.encode(ALPHABET) == list(range(len(ALPHABET)))
    text = "8+3-4+2:8+3=9;9-4=5;5+2=7"
    assert tokenizer.encode(text) == encode(text, len(text)).tolist()
    assert tokenizer.decode_answer([*tokenizer.encode("5+2=7"), *[tokenizer.eos_id] * 3]) == "5+2=7"
    assert tokenizer.mask_id == 0
    tokenizer.check_model(0, len(ALPHABET))


def test_a_text_source_keeps_its_templates_and_its_tokenizer(tmp_path):
    letters = write_text_tokenizer(tmp_path / "letters")
    data = write_rows(tmp_path / "x.jsonl", {"q": "1", "a": "2"})
    source = TextSource(data=data, tokenizer=letters, prompt="Q: {q}", response="{a}", max_length=9)
    inputs, files = described(source)
    assert inputs == TextInputs(prompt="Q: {q}", response="{a}", max_length=9)
    shutil.rmtree(letters)
    (tmp_path / "copy").mkdir()
    for name, content in files.items():
        (tmp_path / "copy" / name).write_bytes(content)
    copy = load_tokenizer(str(tmp_path / "copy"))
    assert copy.mask_id == MASK
    assert copy.has_chat
    assert str(tmp_path) not in files[INPUTS].decode()


def test_words_are_known_without_the_pictures(tmp_path):
    folder = write_pngs(tmp_path / "pngs")
    _, shapes, _ = write_edits(tmp_path / "edits")
    pairs = EmojiPairs(folder=str(folder), side=32, edits=("recolour",))
    source = ImageEditSource(pairs=pairs, tokenizer=shapes.tokenizer, text=WordText(size=64))
    inputs, files = described(source)
    shutil.rmtree(folder)
    assert isinstance(inputs, EditInputs)
    assert inputs.words == pairs.words()
    assert inputs.size == PictureSize(height=32, width=32)
    for name, content in files.items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    again = inputs.source(str(tmp_path / "copy"))
    words = "make the whale green"
    assert again.text.prompt(words, again.pairs.words()) == source.text.prompt(words, pairs.words())
    assert again.unknown_words("make the zebra green") == ["zebra"]
    assert again.tokenizer_hash() == source.tokenizer_hash()


def test_a_published_text_of_edits_has_its_tokenizer_beside_it(tmp_path):
    _, shapes, _ = write_edits(tmp_path / "edits")
    letters = write_text_tokenizer(tmp_path / "letters")
    source = dataclasses.replace(shapes, text=PublishedText(tokenizer=letters, system="be brief"))
    inputs, files = described(source)
    assert isinstance(inputs, EditInputs)
    assert inputs.words == ()
    assert "tokenizer" not in inputs.text
    assert {"tokenizer.json", f"{IMAGES}/config.json", f"{IMAGES}/model.safetensors"} <= set(files)
    again = inputs.source("elsewhere").text
    assert isinstance(again, PublishedText)
    assert again.system == "be brief"
    assert again.tokenizer.endswith("/elsewhere")


def test_a_build_writes_them_once_and_for_good(tmp_path):
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(BUILD))
    recipe = load_recipe(BuildRecipe, tmp_path / "recipe.yaml", [f"output={tmp_path}/data"])
    build.run(recipe)
    files = read_description(Storage(str(tmp_path / "data")))
    assert files == describe(recipe.source) == read_input_files(tmp_path / "data" / FOLDER)
    before = (tmp_path / "data" / FOLDER / INPUTS).stat().st_mtime_ns
    build.run(recipe)
    assert (tmp_path / "data" / FOLDER / INPUTS).stat().st_mtime_ns == before
    assert open_manifest(str(tmp_path / "data")).collect()["rows"].sum() == 12


def test_a_data_set_without_them_has_none(tmp_path):
    assert read_description(Storage(str(tmp_path))) is None


class OwnSource:
    kind = "own"


def test_a_source_of_ones_own_kind_is_not_described():
    assert describe(OwnSource()) is None  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "dance"}, r"kind must be one of \['sudoku', 'text', 'image_edit'\], got 'dance'"),
        ({"kind": "sudoku", "side": 5}, "side must be one of"),
        ({"kind": "text", "data": "x"}, r"unknown keys \['data'\]"),
        ({"kind": "text", "max_length": 1 << 30}, "max_length must lie in"),
        ({"kind": "text", "prompt": "{"}, "is no template"),
        ({"kind": "image_edit"}, r"missing keys \['size'\]"),
        ({"kind": "image_edit", "size": {"height": 1 << 20, "width": 8}}, "size.height must lie"),
        ({"kind": "image_edit", "size": {"height": 8, "width": 8, "step": 99}}, "no picture of at"),
        (
            {"kind": "image_edit", "size": {"height": 8, "width": 8}, "text": {"kind": "x"}},
            "text: kind must be one of",
        ),
        (
            {"kind": "image_edit", "size": {"height": 8, "width": 8}, "text": {"size": 2}},
            "text.size must be at least 8",
        ),
    ],
)
def test_settings_that_we_never_write_are_refused(values, said):
    with pytest.raises(ValueError, match=said) as refusal:
        inputs_from(values, INPUTS)
    assert str(refusal.value).startswith(INPUTS)


def test_pictures_are_read_as_the_source_of_training_does(tmp_path):
    folder, edits, pairs = write_edits(tmp_path)
    own = inputs_from(parse_inputs((tmp_path / "model" / INPUTS).read_bytes(), INPUTS), INPUTS)
    reader = own.reader(folder, load(folder))
    assert isinstance(reader, EditReader)
    for pair in pairs:
        picture = png(Image.fromarray(pair.source))
        start = reader.start({"picture": picture, "instruction": pair.instruction})
        (codes,) = edits.encode([pair.source])
        row = edits.row(pair.instruction, codes, codes)
        assert start.tokens.tolist() == row.wrong.tolist()
        assert start.editable.tolist() == row.editable.tolist()
        assert reader.cells(start.tokens[start.shown].tolist()) == [
            str(x) for x in codes.flatten().tolist()
        ]
        (shown,) = reader.pictures(start, start.tokens[None])
        assert np.array_equal(shown, edits.decode([codes])[0])


def test_masked_cells_are_grey(tmp_path):
    folder, _, (pair, *_) = write_edits(tmp_path)
    own = inputs_from(json.loads((tmp_path / "model" / INPUTS).read_text())["source"], INPUTS)
    reader = own.reader(folder, load(folder))
    assert isinstance(reader, EditReader)
    picture = png(Image.fromarray(pair.source))
    start = reader.start({"picture": picture, "instruction": "make the red square blue"})
    masked = start.tokens.clone()
    masked[start.shown[5]] = 1
    plain, grey = reader.pictures(start, torch.stack([start.tokens, masked]))
    differs = (plain != grey).any(-1)
    assert (grey[8:16, 8:16] == 170).all()
    differs[8:16, 8:16] = False
    assert not differs.any()
    assert reader.cells(masked[start.shown].tolist())[5] == "·"


def test_pictures_of_any_shape_keep_theirs():
    size = PictureSize(height=64, width=64, step=16)
    assert size.fit((100, 100)) == (64, 64)
    height, width = size.fit((50, 100))
    assert width > height
    assert height * width <= 64 * 64
