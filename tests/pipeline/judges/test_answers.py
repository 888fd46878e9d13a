"""Answers found in responses and compared as mathematics."""

import itertools
import json
import time

import pytest

from remask.pipeline.judges import equivalence
from remask.pipeline.judges.answers import (
    extract_answer,
    is_right,
    last_boxed,
    last_number,
    same_answer,
)
from remask.pipeline.judges.equivalence import AnswerChecker
from tests.places import ROOT

MATH_500 = ROOT.parent / "shared" / "data" / "math500" / "test.jsonl"


@pytest.fixture(scope="module")
def checker():
    pytest.importorskip("math_verify")
    with AnswerChecker(timeout_s=2) as started:
        yield started


@pytest.fixture(scope="module")
def hasty_checker():
    pytest.importorskip("math_verify")
    with AnswerChecker(timeout_s=0.5) as started:
        yield started


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\left\{ x_{1}, \{2\} \right\}}", r"\left\{ x_{1}, \{2\} \right\}"),
        (r"\fbox{3} \boxed {4}", "4"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"\boxed{\text{a \boxed{5} b}}", r"\text{a \boxed{5} b}"),
        (r"\boxed 7$", "7"),
        (r"\boxed{1} \fbox{2}", "2"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{", None),
        (r"}}\boxed{8}}}", "8"),
        (r"\boxed{}", ""),
        (r"\\boxed{5}", None),
        ("", None),
        ("\\", None),
    ],
)
def test_the_last_complete_box(text, expected):
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"The answer is 4. But \boxed{5}", "5"),
        ("The final answer is $\\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        ("Final Answer: The final answer is $x^2$ I hope it is correct.", "x^2"),
        ("The answer is 1.\nNo, the answer is: 3.5.", "3.5"),
        ("**Answer:** 6", "6"),
        ("ANSWER: $$7$$", "7"),
        (r"the answer is \(8\).", "8"),
        (r"\boxed{} so the answer is 9", "9"),
        ("there are 12 of them", None),
        ("the answer is", None),
        ("", None),
    ],
)
def test_answers_of_math(response, expected):
    assert extract_answer(response, "math") == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("She has 3+4 = 7.\n#### 7", "7"),
        ("#### 1\n#### $1,234.50 per day", "1234.50"),
        ("#### -5", "-5"),
        ("#### none, the answer is 6 or 7", "6"),
        (r"about 5 so \boxed{18}", "18"),
        ("The answer is $2,000 for 3 people.", "2000"),
        ("first 5, then 6 eggs.", "6"),
        ("from 3 to .5", ".5"),
        ("A4 and x2", None),
        ("no number", None),
        ("", None),
    ],
)
def test_answers_of_gsm8k(response, expected):
    assert extract_answer(response, "gsm8k") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("1,000,000.5!", "1000000.5"), ("3/4", "3/4"), ("12,34", "34")]
)
def test_numbers_in_text(text, expected):
    assert last_number(text) == expected


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "5"),
        ("5", "$5$."),
        ("5", "2+3"),
        (r"\frac{1}{2}", "0.5"),
        (r"\frac12", "1/2"),
        (r"2\sqrt{3}", r"\sqrt{12}"),
        ("x^2+2x+1", "(x+1)^2"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)"),
        ("p - q", "-q + p"),
        ("1,2", r"\{2,1\}"),
        (r"\$18", "18"),
        ("1000", "1,000"),
        (r"90^\circ", "90"),
        ("6-5i", "-5i+6"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ],
)
def test_equal_answers(gold, answer, checker):
    assert same_answer(gold, answer, checker)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "6"),
        ("5", "5 or 6"),
        ("5", "5, 6"),
        ("5", r"5} \boxed{6"),
        ("5", "55"),
        ("3", "3.001"),
        ("(1,2)", "(2,1)"),
        ("[1,2]", "(1,2)"),
        ("x+1", "x-1"),
        (r"\text{even}", r"\text{odd}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
        *(
            ("5", odd)
            for odd in ("", " ", "?", "\\", "{", "}", "$", "$$", "\0", "\ud800", "\n5\n5")
        ),
        ("", ""),
        ("5", r"\frac{5}{"),
        ("5", "__import__('os')._exit(0)"),
    ],
)
def test_other_answers(gold, answer, checker):
    assert not same_answer(gold, answer, checker)


@pytest.mark.parametrize(
    "answer",
    [
        "9^{9^{9^{9^{9}}}}",
        "10**10**10",
        "(" * 500 + "5" + ")" * 500,
        "{" * 400 + "5" + "}" * 400,
        r"\frac{1}" * 100,
        "5" * 100_000,
        "9" * 900 + "^{" + "9" * 90 + "}",
        "99999999999!",
        r"\sum_{i=1}^{10^{12}} \sin(i)",
        r"\int_0^{99} x^{x^{x}} dx",
        r"\sqrt{" * 18 + "5" + "}" * 18,
    ],
)
def test_hostile_answers_are_wrong_in_bounded_time(answer, hasty_checker):
    start = time.monotonic()
    assert not same_answer("5", answer, hasty_checker)
    assert time.monotonic() - start < 60, "on the clock, and the machine may be busy"
    assert same_answer("5", "5.0", hasty_checker), "the next one must be judged as ever"


@pytest.mark.parametrize("preset", ["math", "gsm8k"])
@pytest.mark.parametrize(
    "part", [r"\boxed{", "}", "answer is ", "####", "1,", ".", "$", "\\", "1", "answer is\n", " "]
)
def test_long_responses_are_read_in_linear_time(part, preset):
    start = time.process_time()
    extract_answer(part * 200_000, preset)
    assert time.process_time() - start < 5


def test_a_response_is_right_by_its_final_answer(checker):
    assert is_right(r"First 4. So \boxed{0.5}", r"\frac{1}{2}", "math", checker)
    assert not is_right(r"First \frac{1}{2}. So \boxed{4}", r"\frac{1}{2}", "math", checker)
    assert not is_right("", "5", "math", checker)
    assert is_right("It costs $1,250.00.\n#### 1250", "1250", "gsm8k", checker)


def test_without_math_verify_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(equivalence.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"pip install 'remask\[text\]'"):
        AnswerChecker()


def test_time_must_be_above_zero():
    with pytest.raises(ValueError, match="timeout_s must be above 0, got 0"):
        AnswerChecker(timeout_s=0)


@pytest.mark.skipif(not MATH_500.exists(), reason=f"{MATH_500} is not there")
def test_every_answer_of_math_500_equals_itself_and_no_neighbour(checker):
    golds = [json.loads(line)["answer"] for line in MATH_500.read_text().splitlines()]
    assert len(golds) == 500
    assert [g for g in golds if not is_right(f"So $\\boxed{{{g}}}$.", g, "math", checker)] == []
    pairs = [(a, b) for a, b in itertools.pairwise(golds) if a != b]
    assert [p for p in pairs if same_answer(*p, checker)] == [("5", "x=5")]
