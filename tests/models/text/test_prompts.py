"""Prompts and answers through a real tokenizer made here."""

import json

import pytest

from remask.models.text.prompts import check_room, cut_at_stops, load_tokenizer
from tests.text_folders import BOS, EOS, EOT, HEAD, MASK, write_text_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(write_text_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def test_the_ids_that_matter_are_found(tokenizer):
    assert (tokenizer.mask_id, tokenizer.bos_id, tokenizer.eos_id) == (MASK, BOS, EOS)
    assert tokenizer.end_ids == (EOS, EOT)


def test_a_plain_prompt_is_its_text_after_bos(tokenizer):
    ids = tokenizer.encode_prompt("2+2=", chat=False)
    assert ids[0] == BOS
    assert tokenizer.inner.decode(ids[1:]) == "2+2="
    assert tokenizer.encode_prompt("2+2=", chat=False, bos=False) == ids[1:]


def test_a_conversation_ends_where_the_assistant_speaks_and_has_one_bos(tokenizer):
    rounds = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2?"},
    ]
    ids = tokenizer.encode_prompt(rounds, chat=True)
    assert ids.count(BOS) == 1
    assert (ids.count(HEAD), ids.count(EOT)) == (4, 3)
    assert tokenizer.inner.decode(ids, skip_special_tokens=True) == (
        "user: 1+1?assistant: 2user: 2+2?assistant: "
    )
    assert tokenizer.encode_prompt("2+2?", chat=True) == tokenizer.encode_prompt(
        rounds[2:], chat=True
    )
    plain = tokenizer.encode_prompt(rounds, chat=False, bos=False)
    assert tokenizer.inner.decode(plain) == "1+1?22+2?"


@pytest.mark.parametrize("bos", [True, False])
def test_a_pair_joins_to_the_whole_and_blanks_go_to_the_continuation(tokenizer, bos):
    context, rest = tokenizer.encode_pair("Answer: ", "four", bos=bos)
    assert tokenizer.inner.decode(rest) == " four"
    assert context + rest == [BOS] * bos + tokenizer.encode("Answer: four")
    assert tokenizer.encode_pair("", "four", bos=bos)[0] == [BOS] * bos
    with pytest.raises(ValueError, match="nothing to score in the continuation ''"):
        tokenizer.encode_pair("Answer:", "")


@pytest.mark.parametrize(
    ("ids", "stops", "expected"),
    [
        ("four", (), "four"),
        ("four<|endoftext|>five", (), "four"),
        ("four<|eot_id|><|endoftext|>", (), "four"),
        ("<|endoftext|>four", (), ""),
        ("four\n\nProblem: next", ("Question:", "Problem:"), "four\n\n"),
        ("a\nB\nA", ("A", "B"), "a\n"),
        ("fo<|head|>ur", (), "four"),
        ("fo<|head|>ur", ("<|head|>",), "fo"),
        ("four", ("",), "four"),
    ],
)
def test_an_answer_ends_at_its_end_token_or_a_stop(tokenizer, ids, stops, expected):
    assert tokenizer.decode_answer(tokenizer.encode(ids), stops) == expected


def test_stops_count_by_where_they_are_not_by_their_order():
    assert cut_at_stops("one two three", ("three", "two")) == "one "
    assert cut_at_stops("one", ()) == "one"


def test_the_hash_knows_the_template_and_the_mask(tokenizer, tmp_path):
    other = load_tokenizer(write_text_tokenizer(tmp_path / "plain", chat=False))
    assert other.hash != tokenizer.hash
    again = load_tokenizer(write_text_tokenizer(tmp_path / "same"))
    assert again.hash == tokenizer.hash


def test_a_mask_token_that_is_not_there_is_refused(tmp_path):
    folder = write_text_tokenizer(tmp_path / "maskless", mask=False)
    with pytest.raises(ValueError, match=r"maskless has no mask token such as \[MASK\], <mask>"):
        load_tokenizer(folder, None, "nothing")
    with pytest.raises(ValueError, match="has no mask token <gone>; use a mask diffusion model's"):
        load_tokenizer(folder, "<gone>")
    assert load_tokenizer(folder, "<|none|>").mask_id == MASK


def test_mistakes_are_named(tokenizer, tmp_path):
    plain = load_tokenizer(write_text_tokenizer(tmp_path / "plain", chat=False))
    with pytest.raises(ValueError, match="has no chat template; set chat: false"):
        plain.encode_prompt("hello", chat=True)
    with pytest.raises(ValueError, match="the prompt contains the mask token '<|mdm_mask|>'"):
        tokenizer.encode_prompt("a <|mdm_mask|>", chat=False)
    with pytest.raises(ValueError, match="cannot load tokenizer .*nowhere.*; pass the path"):
        load_tokenizer(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=f"has MASK at {MASK}, the model at 3; use the tokenizer"):
        tokenizer.check_model(3, 264)
    with pytest.raises(ValueError, match="has ids up to 260, the model only 260 of them"):
        tokenizer.check_model(MASK, 260)
    tokenizer.check_model(MASK, 261)


def test_a_class_that_comes_as_code_is_read_by_its_twin(tmp_path):
    letters = ["a", "b", "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({x: i for i, x in enumerate(letters)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    settings = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "eos_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "added_tokens_decoder": {"3": {"content": "<|mask|>", "special": True}},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "tokenization_dream.py").write_text("raise SystemExit('it ran')")
    actual = load_tokenizer(str(tmp_path))
    assert (actual.mask_id, actual.encode("ba")) == (3, [1, 0])


def test_room_for_an_answer():
    check_room(10, 6, 16, "sample 1")
    check_room(10, 600, None, "sample 1")
    with pytest.raises(ValueError, match="sample 1: a prompt of 10 tokens leaves room for 6 in"):
        check_room(10, 7, 16, "sample 1")
    with pytest.raises(ValueError, match="leaves no room to answer in a model of 10 positions"):
        check_room(10, 7, 10, "sample 1")


@pytest.mark.parametrize("name", ["x" * 300, "./" + "x" * 300, "a\0b"], ids=["name", "path", "nul"])
def test_tokenizers_of_impossible_names_are_refused(name):
    with pytest.raises(ValueError, match="cannot load tokenizer"):
        load_tokenizer(name)


@pytest.mark.parametrize("text", ["5", "[]", "{", "[" * 9999, '{"tokenizer_class": [1]}'])
@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_tokenizers_are_refused_in_a_line(tmp_path, file, text):
    folder = write_text_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / file).write_text(text)
    with pytest.raises(ValueError, match="tokenizer") as caught:
        load_tokenizer(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["/no/tokenizer", "./tokenizer", "../t", "~/t", "runs/a/b", "t/"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(name):
    with pytest.raises(ValueError, match="cannot load tokenizer .*: there is no such folder; pass"):
        load_tokenizer(name)


def test_text_that_is_not_unicode_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"tokenizer .* cannot read 'half \\ud800'"):
        tokenizer.encode("half \ud800")
