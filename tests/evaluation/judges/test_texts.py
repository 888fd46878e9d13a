"""Judges of one's own text: numbers, patterns, tests."""

from fractions import Fraction

import pytest

from remask.evaluation.judges.texts import check_pattern, find_number, matches, read_tests


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("98", 98),
        ("It is 1,006 hens.", 1006),
        ("3 and then 4", 4),
        ("-2.50", Fraction(-5, 2)),
        ("so 1/2", Fraction(1, 2)),
        ("the answer is 7, not 8", 7),
        ("#### 12\n13", 12),
        ("9" * 900, int("9" * 900)),
    ],
)
def test_the_final_number_is_found(text, number):
    found = find_number(text)
    assert found is not None
    assert found[1] == number


@pytest.mark.parametrize("text", ["", "none", "1/0", "9" * 1001])
def test_some_texts_have_no_number(text):
    assert find_number(text) is None


def test_patterns_match_anywhere_unless_anchored():
    assert matches(r"\b9\d\b", "it is 98.")
    assert not matches(r"^9\d$", "it is 98.")
    assert matches(r"(?i)YES", "yes")
    assert matches("", "")


def test_no_pattern_backtracks():
    """Python's own engine would take 2 to the power of 40 steps here, and more than a lifetime."""
    assert not matches(r"^(a+)+$", "a" * 40 + "!")
    assert not matches(r"(.*)*(.*)*(.*)*x", "a" * 20_000)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a", "unclosed group"),
        ("*", "repetition operator missing expression"),
        ("(?=a)", "look-around, .* is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        ("(?:a{1000}){1000}", "exceeds size limit"),
    ],
)
def test_bad_patterns_are_named_in_a_line(pattern, reason):
    with pytest.raises(ValueError, match=f"is no regular expression: .*{reason}") as caught:
        check_pattern(pattern)
    assert "\n" not in str(caught.value)


def test_tests_say_what_a_program_must_define():
    tests = read_tests(
        "import math\nfrom os import path as p\nsome = [1]\n"
        "def near(a, b):\n    return abs(a - b) < 1\n"
        "assert near(area(2), math.pi * 4)\nassert [twice(x) for x in some] == [2]\nprint(p)"
    )
    assert tests.names == ("area", "twice")
    assert len(tests.tests) == 3
    assert tests.setup.startswith("import math\nfrom os import path as p\nsome = [1]\ndef near")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("assert f(", "the tests are no Python"),
        ("a\0b", "the tests are no Python"),
        ("(" * 5000, "the tests are no Python"),
        ("", "use nothing that a program defines"),
        ("assert 1 + 1 == 2", "use nothing that a program defines"),
        ("import math\nx = f(1)", "use nothing that a program defines"),
    ],
)
def test_tests_that_test_nothing_are_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        read_tests(text)
