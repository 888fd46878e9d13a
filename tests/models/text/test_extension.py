"""Tokenizers without MASK or an end token: what is added, and that saving keeps it."""

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from remask.models.text.prompts import TextTokenizer, load_tokenizer
from tests.sums import write_byte_tokenizer, write_word_tokenizer
from tests.text_folders import EOS, MASK, write_text_tokenizer

WRITERS = {"bytes": write_byte_tokenizer, "words": write_word_tokenizer}
TEXT = "33 + 65 = 98"


@pytest.mark.parametrize(("kind", "size"), [("bytes", 256), ("words", 13)])
def test_mask_and_end_follow_the_last_id(kind, size, tmp_path):
    tokenizer = load_tokenizer(WRITERS[kind](tmp_path / kind))
    assert (tokenizer.mask_id, tokenizer.eos_id, tokenizer.size) == (size, size + 1, size + 2)
    assert tokenizer.added == ("<|mask|>", "<|endoftext|>")
    assert tokenizer.end_ids == (size + 1,)
    assert max(tokenizer.encode(TEXT)) < size
    assert tokenizer.decode_answer([*tokenizer.encode(TEXT), size + 1, 0]).replace(" ", "") == (
        TEXT.replace(" ", "")
    )


@pytest.mark.parametrize("kind", WRITERS)
def test_a_saved_copy_has_the_same_ids_and_hash(kind, tmp_path):
    first = load_tokenizer(WRITERS[kind](tmp_path / kind))
    first.inner.save_pretrained(tmp_path / "model")
    copy = load_tokenizer(str(tmp_path / "model"))
    assert copy.added == ()
    assert copy.hash == first.hash
    assert copy.inner.get_vocab() == first.inner.get_vocab()
    assert (copy.mask_id, copy.end_ids) == (first.mask_id, first.end_ids)
    assert copy.encode(f"{TEXT}<|mask|>") == first.encode(f"{TEXT}<|mask|>")


def test_a_mask_that_the_user_named_is_named_in_the_copy(tmp_path):
    folder = write_text_tokenizer(tmp_path / "first", mask=False)
    first = load_tokenizer(folder, "<|none|>")
    assert (first.mask_id, first.eos_id, first.added) == (MASK, EOS, ())
    first.inner.save_pretrained(tmp_path / "copy")
    copy = load_tokenizer(str(tmp_path / "copy"))
    assert (copy.mask_id, copy.hash) == (MASK, first.hash)


def test_what_a_tokenizer_has_is_used(tmp_path):
    both = load_tokenizer(write_word_tokenizer(tmp_path / "a", mask_token="[M]", eos_token="[E]"))
    assert (both.mask_id, both.eos_id, both.added) == (1, 2, ())
    masked = load_tokenizer(write_word_tokenizer(tmp_path / "b", mask_token="[M]"))
    assert (masked.mask_id, masked.eos_id, masked.added) == (1, 14, ("<|endoftext|>",))


def test_a_usual_end_without_its_role_is_the_end(tmp_path):
    folder = write_word_tokenizer(tmp_path / "a", additional="</s>", mask_token="[M]")
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.eos_id, tokenizer.added) == (1, ())


def test_the_mask_has_one_id_with_and_without_an_end(tmp_path):
    folder = write_byte_tokenizer(tmp_path / "bytes")
    endless = load_tokenizer(folder, None, "mask")
    assert (endless.mask_id, endless.eos_id, endless.size) == (256, None, 257)
    assert load_tokenizer(folder).mask_id == 256
    with pytest.raises(ValueError, match="has no mask token such as"):
        TextTokenizer(folder)  # as published image models are read, whose ids go on after the text


def test_models_that_lack_the_new_rows_are_refused(tmp_path):
    tokenizer = load_tokenizer(write_byte_tokenizer(tmp_path / "bytes"))
    tokenizer.check_model(256, 258)
    tokenizer.check_model(256, 257)  # trained without ends
    with pytest.raises(ValueError, match="has no MASK, which would get id 256, the model at 0"):
        tokenizer.check_model(0, 256)
    with pytest.raises(ValueError, match="has ids up to 257, the model only 256 of them"):
        tokenizer.check_model(256, 256)


def test_ids_with_gaps_are_refused(tmp_path):
    """The tokenizers library would give the new token the id of `c`."""
    inner = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 3}, unk_token="c"))
    PreTrainedTokenizerFast(tokenizer_object=inner).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"numbers its 3 tokens up to 3, with gaps, so <\|mask"):
        load_tokenizer(str(tmp_path))


def test_a_file_is_no_tokenizer(tmp_path):
    write_byte_tokenizer(tmp_path / "bytes")
    with pytest.raises(ValueError, match="it is a file; pass the folder that it lies in"):
        load_tokenizer(str(tmp_path / "bytes" / "tokenizer.json"))
