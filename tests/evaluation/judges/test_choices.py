"""Letters chosen in generated text."""

import time

import pytest

from remask.evaluation.judges.choices import parse_choice

LABELS = ("A", "B", "C", "D")
TEXTS = ("oxygen", "liquid oxygen", "a cloud of dust", "It's hot.")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("B", "B"),
        (" B.", "B"),
        ("(B)", "B"),
        ("B) liquid oxygen", "B"),
        ("**C**", "C"),
        ("C: a cloud of dust", "C"),
        ("The answer is D.", "D"),
        ("The best answer is (d)", "D"),
        ("The correct answer is option B because A is wrong.", "B"),
        ("The answer is A. No, wait, the answer is C.", "C"),
        ("Answer: **B**", "B"),
        ("the answer is:\n\nB", "B"),
        (r"So \boxed{C}.", "C"),
        (r"\boxed{\text{C}}", "C"),
        (r"The answer is \(A\)", "A"),
        ("A planet needs air.\nB\n", "B"),
        ("Because of heat, (D) fits.", "D"),
        ("It must be liquid oxygen.", "B"),
        ("oxygen", "A"),
        ("the answer is it's HOT", "D"),
        ("The answer is a cloud of dust", "C"),
    ],
)
def test_choices(response, expected):
    assert parse_choice(response, LABELS, TEXTS) == expected


@pytest.mark.parametrize(
    "response",
    [
        *(
            "",
            " ",
            "\n",
            "E",
            "I do not know.",
            "Animals need B vitamins",
            "A cat sat.",
            "ABCD",
            "\\",
        ),
        *("The answer is E.", "The answer is A or B.", "(A) or (B)", "A\nB\nC\nD", "\0", "\ud800"),
        *("oxygen and a cloud of dust", "The answer is unknown", "a", "Because", "A's"),
    ],
)
def test_no_choice(response):
    assert parse_choice(response, LABELS, TEXTS) is None


def test_labels_may_be_digits_or_five():
    assert parse_choice("The answer is 3.", ("1", "2", "3", "4")) == "3"
    assert parse_choice("12 is a number", ("1", "2", "3", "4")) is None
    assert parse_choice("E", (*LABELS, "E")) == "E"


def test_the_text_counts_only_when_given():
    assert parse_choice("liquid oxygen", LABELS) is None


@pytest.mark.parametrize(
    "part", ["A", "(", "answer is ", " ", "\n", "A or ", "\\boxed{", "*", "oxygen "]
)
def test_hostile_responses_take_little_time(part):
    start = time.process_time()
    parse_choice(part * 300_000, LABELS, TEXTS)
    assert time.process_time() - start < 5
