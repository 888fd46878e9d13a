"""Text through `datasets` and a real tokenizer, both made here."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from remask.pipeline.sources.text import TextSource
from tests.sums import write_byte_tokenizer, write_sums, write_word_tokenizer

WORDS = ["[MASK]", "[PAD]", "<s>", "</s>", "[UNK]", "one", "two", "three", "plus", "is", "?"]
RECORDS = [
    {"question": "one plus one is ?", "answer": "two"},
    {"question": "one plus two is ?", "answer": "three"},
    {"question": "two plus one is ?", "answer": "three"},
    {"question": "one ?", "answer": "one one one one one one one one one one one"},
    {"question": "what ?", "answer": ""},
    {"question": "two ?", "answer": "[MASK] two"},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("tokenizer")
    PreTrainedTokenizerFast(
        tokenizer_object=inner,
        mask_token="[MASK]",
        pad_token="[PAD]",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="[UNK]",
    ).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def source(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(map(json.dumps, RECORDS)))
    settings = {
        "data": str(path), "tokenizer": tokenizer, "prompt": "{question}", "response": "{answer}",
        "max_length": 10, "held_out_share": 0.0,
    }  # fmt: skip
    return lambda **changes: TextSource(**(settings | changes))


def test_prompts_stay_and_responses_are_editable(source):
    examples = source().examples("train", 0, 100, np.random.default_rng(0))
    assert examples.example_ids == [f"sums-train-{i:09d}" for i in (0, 1, 2, 4)]
    words = [WORDS[t] for t in examples.target[0, : examples.lengths[0]]]
    assert words == ["<s>", "one", "plus", "one", "is", "?", "two", "</s>"]
    assert examples.prompt_lengths.tolist() == [6, 6, 6, 3]
    assert examples.editable[0].tolist() == [False] * 6 + [True] * 2


def test_what_does_not_fit_is_left_out_and_counted(source):
    examples = source().examples("train", 0, 100, np.random.default_rng(0))
    assert examples.num_skipped == 2  # too long, and one with MASK; an empty answer still ends
    strict = source(append_eos=False).examples("train", 3, 3, np.random.default_rng(0))
    assert strict.num_skipped == 3
    assert strict.target.shape == (0, 0)


def test_special_and_unused_ids_are_never_proposed(source):
    vocabulary = source().vocabulary()
    assert (vocabulary.size, vocabulary.mask_id) == (len(WORDS), 0)
    assert [WORDS[i] for i in vocabulary.allowed] == WORDS[5:]


def test_splits_do_not_overlap_and_follow_the_prompt(source):
    half = source(held_out_share=0.5)
    rng = np.random.default_rng(0)
    parts = {s: set(half.examples(s, 0, 100, rng).example_ids) for s in ("train", "held_out")}
    whole = set(source().examples("train", 0, 100, rng).example_ids)
    assert parts["train"] | parts["held_out"] == whole
    assert not parts["train"] & parts["held_out"]
    assert half.num_records() == {"train": 6, "held_out": 6}


def test_missing_values_are_left_out_and_counted(source, tmp_path):
    path = tmp_path / "holes.jsonl"
    path.write_text('{"question": "one ?", "answer": "one"}\n{"question": "two ?", "answer": null}')
    examples = source(data=str(path)).examples("train", 0, 9, np.random.default_rng(0))
    assert (len(examples.example_ids), examples.num_skipped) == (1, 1)


def test_without_a_prompt_records_are_told_by_their_response(source):
    path = source().data.replace("sums", "many")
    lines = [{"question": "", "answer": " ".join(["one"] * n)} for n in range(1, 9)]
    Path(path).write_text("\n".join(map(json.dumps, lines)))
    free = source(data=path, prompt="", held_out_share=0.5)
    rng = np.random.default_rng(0)
    counts = [len(free.examples(s, 0, 9, rng).example_ids) for s in ("train", "held_out")]
    assert sum(counts) == 8
    assert all(counts)


def test_the_hash_sees_more_than_the_vocabulary(source, tokenizer, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tokenizer, other)
    settings = json.loads((other / "tokenizer.json").read_text())
    settings["normalizer"] = {"type": "Lowercase"}
    (other / "tokenizer.json").write_text(json.dumps(settings))
    assert source().tokenizer_hash() != source(tokenizer=str(other)).tokenizer_hash()


def test_mistakes_are_named(source, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(ValueError, match="cannot load .*empty.jsonl"):
        source(data=str(tmp_path / "empty.jsonl")).num_records()
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"row 1 does not fit a template \('q'\); it has"):
        source(prompt="{q}").examples("train", 0, 1, rng)
    with pytest.raises(ValueError, match="has no mask token <gone>"):
        source(mask_token="<gone>").vocabulary()
    with pytest.raises(ValueError, match="cannot load tokenizer .*nowhere"):
        source(tokenizer=str(tmp_path / "nowhere")).vocabulary()
    with pytest.raises(ValueError, match="cannot load .*gone.jsonl"):
        source(data=str(tmp_path / "gone.jsonl")).num_records()
    with pytest.raises(ValueError, match="max_length must be at least 2"):
        source(max_length=1)
    with pytest.raises(ValueError, match="held_out_share must lie"):
        source(held_out_share=1.0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [('{"question": "one ?", "answer"', "is not JSON: "), ("[1, 2]", "holds list, not keys and")],
)
def test_a_malformed_line_is_named(source, tmp_path, line, reason):
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join([json.dumps(RECORDS[0]), "", line, json.dumps(RECORDS[1])]))
    with pytest.raises(ValueError, match=f"cannot load .*bad.jsonl: line 3 {reason}"):
        source(data=str(path)).num_records()


def test_a_tokenizer_without_an_end_token_gets_one(source, tokenizer, tmp_path):
    endless = PreTrainedTokenizerFast.from_pretrained(tokenizer)
    endless.eos_token = None
    endless.save_pretrained(tmp_path / "endless")
    settings = {"tokenizer": str(tmp_path / "endless")}
    rows = source(**settings).examples("train", 0, 1, np.random.default_rng(0))
    end = WORDS.index("</s>")  # a usual end, though it has no such role there
    assert (rows.target[0, -1], source(**settings).vocabulary().size) == (end, len(WORDS))
    rows = source(**settings, append_eos=False).examples("train", 0, 1, np.random.default_rng(0))
    assert WORDS[rows.target[0, -1]] == "two"
    # The end of an assistant's turn is an end too, but nothing to fill a bucket with.
    endless.add_special_tokens({"additional_special_tokens": ["<|im_end|>"]})
    endless.chat_template = "{% for m in messages %}{{ m.content }} <|im_end|> {% endfor %}"
    endless.save_pretrained(tmp_path / "chat")
    settings = {"tokenizer": str(tmp_path / "chat"), "chat": True}
    rows = source(**settings).examples("train", 0, 1, np.random.default_rng(0))
    assert rows.target[0, -1] == len(WORDS)
    rows = source(**settings, eos_bucket=4).examples("train", 0, 1, np.random.default_rng(0))
    assert rows.target[0, -2:].tolist() == [len(WORDS), end]


@pytest.mark.parametrize(
    ("write", "size"), [(write_byte_tokenizer, 256), (write_word_tokenizer, 13)]
)
def test_new_tokens_are_part_of_the_vocabulary(source, tmp_path, write, size):
    folder = write(tmp_path / "new")
    data = write_sums(tmp_path / "sums.jsonl", 5)
    ended = source(tokenizer=folder, data=data, max_length=64)
    vocabulary = ended.vocabulary()
    assert (vocabulary.size, vocabulary.mask_id) == (size + 2, size)
    assert size + 1 in vocabulary.excluded
    rows = ended.examples("train", 0, 5, np.random.default_rng(0))
    last = rows.target[range(5), rows.lengths - 1]
    assert last.tolist() == [size + 1] * 5
    endless = source(tokenizer=folder, data=data, max_length=64, append_eos=False)
    assert endless.vocabulary().size == size + 1
    # A copy that was saved beside a model makes the same rows under the same hash.
    ended.read_tokenizer().inner.save_pretrained(tmp_path / "copy")
    copy = source(tokenizer=str(tmp_path / "copy"), data=data, max_length=64)
    assert copy.tokenizer_hash() == ended.tokenizer_hash()
    again = copy.examples("train", 0, 5, np.random.default_rng(0))
    assert again.target.tolist() == rows.target.tolist()
