"""Sums and their steps, beside Python's own arithmetic."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.arithmetic import (
    ALPHABET,
    END,
    ArithmeticSource,
    answer,
    decode,
    encode,
    random_sum,
    row_length,
    solve,
)

SIZES = {"numbers": st.integers(2, 6), "digits": st.integers(1, 4), "seed": st.integers(0, 9999)}


def plain(expression):
    """What Python makes of it; leading zeros it does not take."""
    return eval(re.sub(r"\b0+(?=\d)", "", expression))


@given(**SIZES)
def test_every_step_is_true_and_the_last_is_the_sum(numbers, digits, seed):
    prompt = random_sum(numbers, digits, np.random.default_rng(seed))
    response = solve(prompt)
    terms = re.findall(r"\d+", prompt)
    assert len(terms) == numbers
    assert all(len(term) == digits for term in terms)
    steps = response.split(";")
    assert len(steps) == numbers - 1
    for step in steps:
        left, right = step.split("=")
        assert plain(left) == int(right) >= 0
        assert len(right) == digits + 1
    assert answer(response + END * 3) == plain(prompt.removesuffix(":"))
    assert len(prompt + response) < row_length(numbers, digits)


@given(**SIZES)
def test_characters_come_back_from_tokens(numbers, digits, seed):
    prompt = random_sum(numbers, digits, np.random.default_rng(seed))
    text = prompt + solve(prompt)
    ids = encode(text, row_length(numbers, digits))
    assert decode(ids).rstrip(END) == text


@pytest.mark.parametrize(
    "response", ["", "12+3", "1=", "1+1=x", "1+1=2;2+2=", "1+1=.2", "1+1=_", "1+1=²"]
)
def test_a_response_without_a_last_number_has_no_answer(response):
    assert answer(response) is None


def test_splits_share_no_sum_and_rows_are_prompt_then_response():
    source = ArithmeticSource(numbers=(2, 3), digits=1, held_out_share=0.3)
    seen = {}
    for split in ("train", "held_out"):
        examples = source.examples(split, 0, 300, np.random.default_rng(0))
        texts = [decode(row) for row in examples.target]
        seen[split] = {text.partition(":")[0] for text in texts}
        for text, editable, prompt in zip(
            texts, examples.editable, examples.prompt_lengths, strict=True
        ):
            assert text[prompt - 1] == ":"
            assert not editable[:prompt].any()
            assert editable[prompt:].all()
            assert text[prompt:].rstrip(END) == solve(text[:prompt])
    assert not seen["train"] & seen["held_out"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numbers": (1, 3)}, "numbers must be 2 <= low"),
        ({"digits": 7}, "digits must be 1 to 6"),
        ({"train": 0, "held_out": 0}, "need sums in some split"),
        ({"held_out_share": 0.0}, r"held_out_share must lie in"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        ArithmeticSource(**settings)


def test_text_that_is_no_sum_is_refused():
    with pytest.raises(ValueError, match="characters of"):
        encode("1+1:abc", 20)
    assert len(set(ALPHABET)) == len(ALPHABET)
