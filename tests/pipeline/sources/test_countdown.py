"""Countdown's rows, beside Python's own arithmetic."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remask.pipeline.format.examples import hash_share
from remask.pipeline.sources.countdown import (
    ALPHABET,
    END,
    CountdownSource,
    decode,
    encode,
    is_solution,
    solutions,
)

sources = st.builds(
    CountdownSource,
    numbers=st.tuples(st.integers(2, 4), st.integers(4, 6)),
    largest=st.integers(1, 9),
    signs=st.sampled_from(["free", "given"]),
)


def plain_check(prompt, response):
    """Each step true between 0 and 9, digits in order, results passed on, the prompt's target
    reached or its signs used?"""
    free = re.fullmatch(r"(\d+)=(\d):", prompt)
    digits = free[1] if free else re.sub(r"\D", "", prompt)
    steps = [re.fullmatch(r"(\d)([+-])(\d)=(\d)", x) for x in response.rstrip(END).split(";")]
    if None in steps or len(steps) != len(digits) - 1:
        return False
    totals = [digits[0], *(step[4] for step in steps)]
    return (
        [step[1] for step in steps] == totals[:-1]
        and [step[3] for step in steps] == list(digits[1:])
        and all(int(x[4]) == sorted((0, eval(x[1] + x[2] + x[3]), 9))[1] for x in steps)
        and (totals[-1] == free[2] if free else [x[2] for x in steps] == re.findall("[+-]", prompt))
    )


@given(sources, st.integers(0, 9999))
def test_drawn_responses_are_true_step_by_step(source, seed):
    prompt, response = source.draw("train", np.random.default_rng(seed))
    assert plain_check(prompt, response)
    assert is_solution(prompt, response)
    assert is_solution(prompt, response + END * 2)
    assert response in set(solutions(prompt))
    assert len(prompt + response) < source.length
    assert decode(encode(prompt + response, source.length)).rstrip(END) == prompt + response


@given(sources, st.integers(0, 9999), st.data())
def test_a_changed_response_solves_only_if_it_is_another_solution(source, seed, data):
    prompt, response = source.draw("train", np.random.default_rng(seed))
    place = data.draw(st.integers(0, len(response) - 1))
    changed = response[:place] + data.draw(st.sampled_from(ALPHABET)) + response[place + 1 :]
    assert is_solution(prompt, changed) == plain_check(prompt, changed)


@given(sources, st.integers(0, 9999))
def test_all_solutions_are_those_that_check(source, seed):
    prompt, _ = source.draw("train", np.random.default_rng(seed))
    responses = list(solutions(prompt))
    assert len(set(responses)) == len(responses)
    assert all(plain_check(prompt, response) for response in responses)
    assert source.signs == "free" or len(responses) == 1


@pytest.mark.parametrize(
    "response", ["", "8+3", "8+3=9", "8+3=9;", "8+3=9;9-4=5;", "_+3=9;9-4=5", "8+3=9.9-4=5"]
)
def test_what_is_no_whole_response_solves_nothing(response):
    assert is_solution("834=5:", "8+3=9;9-4=5")
    assert not is_solution("834=5:", response)


@pytest.mark.parametrize("signs", ["free", "given"])
def test_splits_share_no_prompt_and_only_responses_are_editable(signs):
    source = CountdownSource(numbers=(3, 4), held_out_share=0.3, signs=signs)
    seen = {}
    for split in ("train", "held_out", "test"):
        examples = source.examples(split, 0, 300, np.random.default_rng(0))
        texts = [decode(row) for row in examples.target]
        seen[split] = {text.partition(":")[0] for text in texts}
        rows = zip(texts, examples.editable, examples.prompt_lengths, strict=True)
        for text, editable, prompt_length in rows:
            assert text[prompt_length - 1] == ":"
            assert not editable[:prompt_length].any()
            assert editable[prompt_length:].all()
    assert not seen["train"] & (seen["held_out"] | seen["test"])
    assert not seen["held_out"] & seen["test"]


@pytest.mark.parametrize(("split", "low", "high"), [("test", 0, 0.1), ("held_out", 0.1, 0.2)])
def test_half_of_the_held_out_prompts_are_for_testing(split, low, high):
    source = CountdownSource(numbers=(3, 3), held_out_share=0.2)
    rng = np.random.default_rng(0)
    shares = [hash_share(source.draw(split, rng)[0].encode()) for _ in range(50)]
    assert low <= min(shares) <= max(shares) < high
    train = [hash_share(source.draw("train", rng)[0].encode()) for _ in range(50)]
    assert min(train) >= 0.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numbers": (1, 3)}, "numbers must be 2 <= low"),
        ({"largest": 10}, r"largest must lie in \[1, 9\], got 10"),
        ({"train": 0, "held_out": 0}, "train and held_out are both 0"),
        ({"held_out_share": 0.0}, r"held_out_share must lie in"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        CountdownSource(**settings)


def test_text_of_other_characters_is_refused():
    with pytest.raises(ValueError, match="characters of"):
        encode("1+1:abc", 20)


def test_a_split_without_prompts_is_an_error():
    source = CountdownSource(numbers=(2, 2), largest=1, held_out_share=0.01)
    with pytest.raises(ValueError, match="none of 10,000 drawn prompts belongs to held_out"):
        source.draw("held_out", np.random.default_rng(0))
