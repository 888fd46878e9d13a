"""Prompts and drafts as rows: those of training, with room for what is revised."""

import numpy as np
import pytest

from remask.models import load
from remask.models.text.prompts import load_tokenizer
from remask.pipeline.inputs.describe import describe
from remask.pipeline.inputs.reader import END_CELL, MASK_CELL
from remask.pipeline.inputs.registry import open_reader
from remask.pipeline.inputs.text import ROOM, TextInputs, TextReader, template_parts
from remask.pipeline.sources.countdown import encode
from remask.pipeline.sources.text import TextSource
from tests.revisers import PROMPT, SUMS, write_sums
from tests.text_folders import BOS, EOS, EOT, MASK, write_llada, write_rows, write_text_tokenizer


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    folder = write_sums(tmp_path_factory.mktemp("sums") / "model")
    return open_reader(folder, load(folder))


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    return write_text_tokenizer(tmp_path_factory.mktemp("letters"))


def reader(letters, max_length=None, **inputs):
    return TextReader(TextInputs(**inputs), load_tokenizer(letters), max_length)


def test_a_response_as_draft_gives_the_row_of_training(sums):
    rng = np.random.default_rng(0)
    for _ in range(5):
        prompt, response = SUMS.draw("train", rng)
        start = sums.start({"prompt": prompt, "draft": response})
        assert start.tokens.tolist() == encode(prompt + response, SUMS.length).tolist()
        assert start.editable.tolist() == [i >= len(prompt) for i in range(SUMS.length)]
        assert sums.result(start, start.tokens) == response


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize(("append_eos", "bucket"), [(True, None), (True, 16), (False, None)])
def test_rows_of_a_text_source_are_written_again(letters, tmp_path, chat, bucket, append_eos):
    data = write_rows(tmp_path / "x.jsonl", {"question": "1+1?", "answer": "two"})
    source = TextSource(
        data=data, tokenizer=letters, prompt="Q: {question}", response="{answer}", chat=chat,
        max_length=60, held_out_share=0.0, append_eos=append_eos, eos_bucket=bucket,
    )  # fmt: skip
    row = source.examples("train", 0, 1, np.random.default_rng(0))
    files = describe(source)
    assert files is not None
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    backbone = load(write_llada(tmp_path / "llada"))
    described = TextInputs(
        prompt="Q: {question}", response="{answer}", chat=chat, max_length=60,
        append_eos=append_eos, eos_bucket=bucket,
    ).reader(str(tmp_path), backbone)  # fmt: skip
    start = described.start({"prompt": "1+1?", "draft": "two"})
    assert start.tokens.tolist() == row.target[0].tolist()
    assert start.editable.tolist() == row.editable[0].tolist()


def test_what_is_not_drafted_is_end_tokens_or_open(sums):
    def cells(**request):
        start = sums.start({"prompt": PROMPT, **request})
        return "".join(sums.cells(start.tokens[start.shown].tolist()))

    assert cells() == MASK_CELL * 12
    assert cells(draft="") == MASK_CELL * 12
    assert cells(length=3) == MASK_CELL * 3
    assert cells(draft="8+3") == "8+3" + END_CELL * 9
    assert cells(draft="8+3", length=5) == "8+3" + END_CELL * 2
    assert cells(draft="8+3", length=3) == "8+3"
    assert cells(draft="8▒3") == f"8{MASK_CELL}3" + END_CELL * 9
    assert cells(draft="8_3▒") == f"8{MASK_CELL}3" + MASK_CELL * 9  # both spellings; open
    assert cells(draft="8+3▒", length=4) == f"8+3{MASK_CELL}"


def test_masks_in_a_draft_are_said(sums):
    assert sums.start({"prompt": PROMPT, "draft": "8"}).notes == ()
    one = sums.start({"prompt": PROMPT, "draft": "8▒"})
    assert one.notes == ("the draft holds 1 MASK, to be filled in",)
    two = sums.start({"prompt": PROMPT, "draft": "_8▒"})
    assert two.notes == ("the draft holds 2 MASKs, to be filled in",)
    assert not two.is_blank
    assert sums.start({"prompt": PROMPT, "draft": "▒"}).is_blank


def test_rows_without_a_bucket_end_as_in_training_and_blank_ones_have_room(letters):
    own = reader(letters, 512, append_eos=True)
    start = own.start({"prompt": "hi", "draft": "yes"})
    assert start.tokens.tolist() == [BOS, *map(ord, "hiyes"), EOS]
    blank = own.start({"prompt": "hi"})
    assert blank.tokens.tolist() == [BOS, *map(ord, "hi")] + [MASK] * ROOM
    assert len(reader(letters, 20).start({"prompt": "hi"}).tokens) == 20
    padded = reader(letters, 512, eos_bucket=100).start({"prompt": "hi"})
    assert len(padded.tokens) == 100
    open_end = reader(letters, 512, append_eos=False).start(
        {"prompt": "hi", "draft": "a", "length": 3}
    )
    assert open_end.tokens.tolist()[-3:] == [ord("a"), MASK, MASK]


def test_a_conversation_is_a_prompt_by_the_chat_template(letters):
    own = reader(letters, 512, chat=True)
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "why"},
    ]
    start = own.start_chat(said, length=4)
    fixed = start.tokens[~start.editable].tolist()
    assert fixed == own.tokenizer.encode_prompt(said, chat=True)
    assert fixed.count(EOT) == 3
    alone = reader(letters, 512).start_chat(said, length=4)
    assert alone.tokens.tolist() == [BOS, *map(ord, "why")] + [MASK] * 4


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "the request lacks 'prompt'"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": " \n"}, "the prompt is empty"),
        ({"prompt": 5}, "prompt must be text, got int"),
        ({"prompt": PROMPT, "length": True}, "length must be a whole number, got bool"),
        ({"prompt": PROMPT, "length": 0}, "length must be at least 1, got 0"),
        (
            {"prompt": PROMPT, "length": 13},
            "room for 12 in rows of 18; give a length of at most 12",
        ),
        ({"prompt": PROMPT, "drat": "8"}, r"unknown keys \['drat'\]"),
        ({"prompt": "8" * 18}, "leaves room for 0 in rows of 18; give a shorter prompt"),
        (
            {"prompt": PROMPT, "draft": "8" * 13},
            "the draft has 13 tokens, and there is room for 12",
        ),
        ({"prompt": PROMPT, "draft": "888", "length": 2}, "room for 2; give a larger length"),
        ({"prompt": "8+_"}, "contains the mask token '_'"),
        ({"prompt": "8+▒"}, "the prompt holds '▒', which the model has no token for"),
        ({"prompt": "8+x"}, "the prompt holds 'x', which the model has no token for"),
        ({"prompt": PROMPT, "draft": "8 plus"}, "the draft holds 'plus', which the model has no"),
        ({"prompt": "8\ud800"}, "cannot read"),
    ],
)
def test_wrong_requests_get_one_sentence(sums, request_, said):
    with pytest.raises(ValueError, match=said) as refusal:
        sums.start(request_)
    assert "\n" not in str(refusal.value)


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path, letters):
    folder = write_sums(tmp_path / "model")
    backbone = load(folder)
    with pytest.raises(ValueError, match="has MASK at 259, the model at 0; use the tokenizer"):
        TextInputs().reader(letters, backbone)
    with pytest.raises(ValueError, match="says chat: true, but its tokenizer has no chat template"):
        TextInputs(chat=True).reader(folder, backbone)


def test_cells_keep_spaces_and_join_to_the_text(tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", "[MASK]", "</s>", "▁x", "▁a", "▁cat", "s", "x"]
    inner = Tokenizer(models.WordPiece({x: i for i, x in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="[UNK]", mask_token="[MASK]", eos_token="</s>"
    ).save_pretrained(tmp_path)
    own = TextReader(TextInputs(), load_tokenizer(str(tmp_path)), 32)
    start = own.start({"prompt": "a", "draft": "a cat"})
    assert own.cells(start.tokens[start.shown].tolist()) == [" a", " cat", END_CELL]
    assert own.start({"prompt": "a dog"}).notes == (
        "the prompt holds characters that the model has no token for",
    )


def test_templates_are_never_formatted():
    assert template_parts("a{x.__class__[0]!r:>99999999999}b") == [("a", "x"), ("b", None)]
    with pytest.raises(ValueError, match="is no template"):
        TextInputs(prompt="{")


def test_a_template_of_several_fields_leaves_the_prompt_as_it_is(letters):
    one = reader(letters, 64, prompt="Q: {q[0]} {q!r}", append_eos=False)
    text = one.tokenizer.inner.decode(one.start({"prompt": "hi", "length": 1}).tokens[1:-1])
    assert text == "Q: hi hi"
    two = reader(letters, 64, prompt="{context} {question}", append_eos=False)
    start = two.start({"prompt": "hi", "length": 1})
    assert start.tokens.tolist() == [BOS, *map(ord, "hi"), MASK]
    assert start.notes == ("the template has 2 fields, so the prompt is used as is",)


def test_a_published_folder_is_a_text_model_with_its_chat_template(tmp_path):
    folder = write_llada(tmp_path / "llada")
    published = open_reader(folder, load(folder))
    assert isinstance(published, TextReader)
    assert published.inputs.chat
    start = published.start({"prompt": "hi", "draft": "yes"})
    assert len(start.tokens) % 64 == 0
    shown = published.cells(start.tokens[start.shown].tolist())
    assert "".join(shown).rstrip(END_CELL) == "yes"
