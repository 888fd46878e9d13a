"""The nearest right answer, beside a search over written-out solutions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remask.pipeline.checkers import ListedAnswers
from remask.pipeline.format.examples import Example
from remask.pipeline.sources.countdown import ALPHABET, END, MASK, CountdownSource, decode, encode

sources = st.builds(
    CountdownSource,
    numbers=st.tuples(st.integers(2, 3), st.integers(3, 6)),
    largest=st.integers(1, 9),
    signs=st.sampled_from(["free", "free", "given"]),
)


def drawn(source, seed):
    return source.examples("train", 0, 1, np.random.default_rng(seed)).example(0)


def solved(digits, total, goal):
    """All ways to write out the steps from a total to a goal, "+" before "-"."""
    if not digits:
        return [""] if goal in (None, total) else []
    ways = []
    for sign in "+-":
        result = max(0, min(9, total + int(sign + digits[0])))
        step = f";{total}{sign}{digits[0]}={result}"
        ways += [step + rest for rest in solved(digits[1:], result, goal)]
    return ways


def right_rows(example):
    """Text of the rows that solve an example's prompt, by a recursion of this test's own."""
    text = decode(example.target)
    prompt = text[: example.prompt_length]
    if "=" in prompt:
        digits, goal = prompt[:-1].split("=")
        ways = solved(digits[1:], int(digits[0]), int(goal))
    else:
        signs = prompt[1:-1:2]
        ways = [x for x in solved(prompt[2::2], int(prompt[0]), None) if signs_of(x) == signs]
    return [f"{prompt}{way[1:]}".ljust(len(text), END) for way in ways]


def signs_of(response):
    return "".join(x for x in response if x in "+-")


def nearest_by_hand(example, state, end):
    """The first of the right rows by changes, by distance to the end, and by being the given."""
    given, draft, last = decode(example.target), decode(state), decode(end)
    rows = right_rows(example)

    def rank(row):
        changes = [a for a, b in zip(row, draft, strict=True) if b != MASK and a != b]
        away = [a for a, b in zip(row, last, strict=True) if a != b]
        return len(changes), len(away), row != given, rows.index(row)

    return min(rows, key=rank)


def spoilt(example, seed, others):
    """A draft and an end: right rows mixed, with MASKs and wrong tokens put in."""
    rng = np.random.default_rng(seed)
    made = []
    for shares in (rng.random(2) * [0.9, 0.4], [0.0, rng.random() * 0.2]):
        row = others[rng.integers(len(others))].copy()
        wrong = example.editable & (rng.random(row.size) < shares[1])
        row[wrong] = rng.integers(1, len(ALPHABET), wrong.sum())
        row[example.editable & (rng.random(row.size) < shares[0])] = 0
        made.append(row)
    return made


@given(sources, st.integers(0, 9999))
def test_the_nearest_solution_is_that_of_a_search_by_hand(source, seed):
    example = drawn(source, seed)
    others = [encode(x, example.length) for x in right_rows(example)]
    state, end = spoilt(example, seed, others)
    nearest = source.checker().nearest(example, state, end)
    assert decode(nearest) == nearest_by_hand(example, state, end)
    assert nearest.dtype == example.target.dtype


@given(sources, st.integers(0, 9999))
def test_exactly_the_solutions_are_right(source, seed):
    example, checker = drawn(source, seed), source.checker()
    rows = right_rows(example)
    assert decode(example.target) in rows
    for row in rows:
        answer = encode(row, example.length)
        assert checker.is_right(example, answer)
        for place in np.flatnonzero(example.editable)[::5]:
            changed = answer.copy()
            changed[place] = 1 + changed[place] % (len(ALPHABET) - 1)
            assert checker.is_right(example, changed) == (decode(changed) in rows)


@pytest.mark.parametrize(
    ("state", "end", "given", "nearest"),
    [
        ("1_2_", "2212", "2212", "1122"),  # the state counts before the end
        ("____", "2211", "1122", "2212"),  # nothing is visible: the nearest to the end
        ("____", "3333", "4343", "4343"),  # as near to the end as 3434: the given one
        ("____", "3333", "1122", "3434"),  # the first of equals
        ("12_2", "2212", "1122", "2212"),  # one change from 1122 and 2212: nearer to the end
    ],
)
def test_ties_go_to_the_end_then_to_the_given_then_to_the_first(state, end, given, nearest):
    state, end, given = (row_of(x) for x in (state, end, given))
    answers = np.stack([row_of(x) for x in ("1122", "2212", "3434", "4343")])
    example = Example("", given, np.ones(4, np.bool_), 0)
    answer = ListedAnswers(lambda _: answers, mask_id=0).nearest(example, state, end)
    assert "".join(map(str, answer)) == nearest


def row_of(text):
    return np.array([int(x) for x in text.replace("_", "0")], np.uint8)
