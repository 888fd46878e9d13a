"""Rows of text on a terminal: what each token adds, what is marked, whose tokenizer is used."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from remask.models.text.prompts import load_tokenizer
from remask.pipeline import build
from remask.pipeline.format.rows import Row, read_rows
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import make_recipe
from remask.pipeline.shard_text import LEGEND, find_tokenizer, pieces, text_lines
from remask.pipeline.shards import main as shards_command
from tests.sums import PROMPT, RESPONSE, write_byte_tokenizer, write_sums, write_word_tokenizer

MASK, END = 256, 257


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    return load_tokenizer(write_byte_tokenizer(tmp_path_factory.mktemp("tokenizers") / "bytes"))


def row(codec, *, wrong, target, step=1):
    """A row whose last token is wrong until step 1, masked until 2, and then right."""
    *first, last = codec.encode(target)
    old = codec.encode(wrong)[0]
    tokens = np.array([[*first, old, END], [*first, MASK, END], [*first, last, END]])
    stays = [0] * len(first)
    ends = np.array([[*stays, 1, 0], [*stays, 2, 0]])
    editable = np.array([False] * len(first) + [True] * 2)
    return Row("row", tokens, ends, step, editable, len(first), 3, MASK)


def test_a_row_is_printed_state_by_state(codec):
    lines = [x.plain for x in text_lines(row(codec, wrong="7", target="3 + 5 =\n8"), codec)]
    assert lines == [
        "    0 3 + 5 =⏎7∎",
        "              ×",
        "→   1 3 + 5 =⏎▒∎",
        "              −",
        "    2 3 + 5 =⏎8∎",
        "              +",
        "    3 3 + 5 =⏎8∎",
    ]


def test_characters_of_several_tokens_and_wide_ones_stay_aligned(codec):
    lines = [x.plain for x in text_lines(row(codec, wrong="7", target="é漢8"), codec)]
    assert lines[0] == "    0 é漢7∎"
    assert lines[1] == "         ×"  # 漢 takes two columns
    ids = codec.encode("é漢")
    assert pieces(ids, codec) == ["", "é", "", "", "漢"]
    assert pieces([*ids[:1], MASK, *ids[1:]], codec)[1] == "▒"


def test_escape_sequences_in_data_are_shown_not_executed(codec):
    lines = [x.plain for x in text_lines(row(codec, wrong="7", target="\x1b[2J8"), codec)]
    assert lines[0] == r"    0 \x1b[2J7∎"


def test_words_have_spaces_between_them(tmp_path):
    words = load_tokenizer(write_word_tokenizer(tmp_path / "words"))
    assert pieces(words.encode("33 + 5"), words) == ["3", " 3", " +", " 5"]


def test_rows_of_another_tokenizer_are_refused(codec, tmp_path):
    words = load_tokenizer(write_word_tokenizer(tmp_path / "words"))
    with pytest.raises(ValueError, match="has MASK at 13 and 15 ids, the row MASK at 256 and ids"):
        list(text_lines(row(codec, wrong="7", target="3 8"), words))


@pytest.fixture
def data(tmp_path, codec, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    recipe = {
        "output": str(tmp_path / "data"),
        "source": {
            "kind": "text",
            "data": write_sums(tmp_path / "sums.jsonl", 20),
            "tokenizer": codec.name,
            "prompt": PROMPT,
            "response": RESPONSE,
        },
        "trajectories": {"noisy_rate": [1.0, 1.0]},
        "run": {"workers": 0},
    }
    build.run(make_recipe(BuildRecipe, recipe, {}))
    return str(tmp_path / "data")


def show(data, capsys, *argv):
    shards_command([data, "show", "train-00000-00", "2", *argv])
    return capsys.readouterr().out.splitlines()


def test_show_prints_text_with_the_tokenizer_that_is_named(data, codec, capsys):
    lines = show(data, capsys, "--tokenizer", codec.name)
    target = list(read_rows(f"{data}/shards/train-00000-00.parquet"))[2].target
    text = codec.decode_answer(target.tolist()).replace("\n", "⏎")
    assert lines[1] == LEGEND
    assert lines[2][1:].startswith("   0 Q: ")
    assert any(line.endswith(f"  6 {text}∎") for line in lines)
    assert any("−" in line for line in lines)


def test_show_finds_the_tokenizer_that_the_data_set_keeps(data, codec, capsys):
    inputs = Path(data, "inputs")
    codec.inner.save_pretrained(inputs)
    (inputs / "inputs.json").write_text(json.dumps({"format": 1, "source": {"kind": "text"}}))
    kept = find_tokenizer(data)
    assert kept is not None
    assert kept.mask_id == MASK
    assert show(data, capsys)[2:] == show(data, capsys, "--tokenizer", codec.name)[2:]


def test_a_damaged_tokenizer_of_a_data_set_is_named(data, codec, capsys):
    inputs = Path(data, "inputs")
    codec.inner.save_pretrained(inputs)
    (inputs / "inputs.json").write_text('{"source": {"kind": "text", "mask_token": []}}')
    (inputs / "tokenizer.json").write_text("{")
    with pytest.raises(SystemExit, match="2"):
        show(data, capsys)
    error = capsys.readouterr().err
    assert f"cannot load tokenizer {data}/inputs: " in error
    assert error.endswith("; or name another one with --tokenizer\n")


@pytest.mark.parametrize(
    "text", ["{", "[]", "5", '{"source": 1}', '{"source": {"kind": "sudoku"}}']
)
def test_other_data_are_printed_as_numbers(data, capsys, text):
    Path(data, "inputs").mkdir(exist_ok=True)
    Path(data, "inputs", "inputs.json").write_text(text)
    assert find_tokenizer(data) is None
    assert re.match(r".   0 +\d+ ", show(data, capsys)[1])


def test_a_wrong_tokenizer_is_a_wrong_request(data, tmp_path, capsys):
    for tokenizer in (write_word_tokenizer(tmp_path / "words"), str(tmp_path / "none")):
        with pytest.raises(SystemExit, match="2"):
            show(data, capsys, "--tokenizer", tokenizer)
        assert capsys.readouterr().err.count("\n") == 1
