"""Tokenizer files of every layout say which id is MASK and which ids are never revealed."""

import json

import pytest

from remask.models import CheckpointError
from remask.models.text.tokens import find_mask, read_vocabulary
from tests.models.folders import write_tokenizer


def write(folder, **files):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)


def test_one_file_with_everything(tmp_path):
    write_tokenizer(tmp_path)
    tokens = read_vocabulary(tmp_path)
    assert find_mask(tmp_path, tokens) == 55
    assert tokens.excluded_ids(60) == (50, 52, 53, 54, 55, 57, 59)


def test_a_list_of_tokens_as_bert_has_it(tmp_path):
    write(tmp_path, vocab__txt="[PAD]\n[unused0]\n[MASK]\nto\nbe\n")
    write(tmp_path, special_tokens_map__json={"pad_token": "[PAD]", "mask_token": "[MASK]"})
    tokens = read_vocabulary(tmp_path)
    assert find_mask(tmp_path, tokens) == 2
    assert tokens.excluded_ids(6) == (0, 1, 2, 5)


def test_vocabulary_and_added_tokens_apart_as_dream_has_it(tmp_path):
    added = {"2": {"content": "<|mask|>", "special": True}, "3": {"content": "<s>"}}
    write(tmp_path, vocab__json={"a": 0, "b": 1}, added_tokens__json={"<think>": 4})
    write(
        tmp_path,
        tokenizer_config__json={
            "added_tokens_decoder": added,
            "mask_token": "<|mask|>",
            "additional_special_tokens": ["<s>"],
            "add_bos_token": False,
        },
    )
    tokens = read_vocabulary(tmp_path)
    assert find_mask(tmp_path, tokens) == 2
    assert tokens.excluded_ids(5) == (2, 3)


def test_scored_tokens_as_unigram_models_have_them(tmp_path):
    write(tmp_path, tokenizer__json={"model": {"vocab": [["<pad>", 0.0], ["[MASK]", -1.0]]}})
    assert find_mask(tmp_path, read_vocabulary(tmp_path)) == 1


def test_the_config_goes_first(tmp_path):
    write_tokenizer(tmp_path)
    assert find_mask(tmp_path, read_vocabulary(tmp_path), 7) == 7


def test_a_missing_mask_token_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="no tokenizer beside it .any of tokenizer.json"):
        find_mask(tmp_path, read_vocabulary(tmp_path))
    write(tmp_path, vocab__txt="to\nbe\n")
    with pytest.raises(CheckpointError, match=r"tokenizer lacks any of \[MASK\], <mask>"):
        find_mask(tmp_path, read_vocabulary(tmp_path))
    write(tmp_path, tokenizer_config__json={"mask_token": "<blank>"})
    with pytest.raises(CheckpointError, match="tokenizer lacks its mask token <blank>; add it, or"):
        find_mask(tmp_path, read_vocabulary(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "tokenizer.json is not JSON"),
        ([1], "tokenizer.json must hold keys and values"),
        ({"added_tokens": [{"id": 1}]}, "tokenizer files are damaged: KeyError.'content'"),
        ({"added_tokens": 5}, "tokenizer files are damaged"),
        ({"model": {"vocab": {"a": "0"}}}, "an id is not a whole number"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    write(tmp_path, tokenizer__json=content)
    with pytest.raises(CheckpointError, match=message):
        read_vocabulary(tmp_path)
