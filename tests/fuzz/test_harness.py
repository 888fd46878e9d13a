"""The fuzz suite itself: planted bugs are caught, told apart, saved and replayed."""

import sys

import pytest

from tests.fuzz.__main__ import divide
from tests.fuzz.case import Case, Target, load_case, save_case
from tests.fuzz.planted import make
from tests.fuzz.pool import Pool
from tests.fuzz.verdict import judge

INPUTS = 40
EXPECTED = {
    "raises": "json.decoder.JSONDecodeError",
    "hangs": "hangs",
    "dies": "process ended by signal 11",
    "takes-memory": "MemoryError",
    "names-nothing": "message names no file or key",
    "writes-escapes": "message holds control characters",
    "violates": "a file was removed",
}


def pool(**changes):
    return Pool(jobs=1, cpu_seconds=0.2, module="tests.fuzz.planted", **changes)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """All planted bugs but the one that sleeps."""
    folder = tmp_path_factory.mktemp("failures")
    return pool().run(dict.fromkeys([*EXPECTED, "refuses"], INPUTS), folder)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_planted_bug_is_caught_and_replayed(outcome, name):
    (words,) = (tally := outcome[name]).buckets
    assert words.startswith(EXPECTED[name])
    assert tally.inputs == INPUTS  # those after one that ended the process too
    is_bad = [bool(Target(name, make, print).case(0, i).notes) for i in range(INPUTS)]
    assert tally.failures == sum(is_bad) > 1
    assert tally.accepted == INPUTS - sum(is_bad)
    answer = pool().replay(tally.buckets[words].saved)
    assert (answer["status"], answer["bucket"]) == ("failed", words)


def test_a_refusal_in_a_clear_line_is_none(outcome):
    assert (outcome["refuses"].refused, outcome["refuses"].failures) == (INPUTS, 0)


def test_an_input_that_waits_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fuzz.pool.WALL_FACTOR", 5)
    tally = pool().run({"sleeps": 20}, tmp_path)["sleeps"]
    assert [words.startswith("waits endlessly") for words in tally.buckets] == [True]
    assert tally.inputs == 20


def test_a_target_that_keeps_ending_the_process_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fuzz.pool.MAX_DEATHS", 2)
    tally = pool().run({"dies": 100}, tmp_path)["dies"]
    assert tally.deaths == tally.failures == 2
    assert tally.inputs + tally.skipped == 100


def test_a_target_that_cannot_make_its_inputs_fails(tmp_path):
    tally = pool().run({"makes-none": 2}, tmp_path)["makes-none"]
    (bucket,) = tally.buckets.values()
    assert (tally.inputs, bucket.count, bucket.saved) == (2, 2, None)


def test_inputs_follow_from_seed_target_and_number():
    target = Target("t", lambda rng: Case({"x": rng.randbytes(8)}), print)
    assert target.case(1, 2) == target.case(1, 2)
    others = (target.case(1, 3), target.case(2, 2), Target("u", target.make, print).case(1, 2))
    assert target.case(1, 2) not in others


def test_a_saved_input_is_the_same_again(tmp_path):
    case = Case({"a/b": b"\xff\0", "c": b"text"}, ("x", "\ud800"), ("note",), ("c",))
    save_case(tmp_path / "case.json", "t", case)
    assert load_case(tmp_path / "case.json") == ("t", case)


def test_every_target_has_inputs_and_slow_ones_fewer():
    assert divide(100, {"quick": 2.0, "slow": 0.001}) == {"quick": 100, "slow": 1}


@pytest.mark.parametrize(
    ("error", "bucket"),
    [
        (ValueError("line 1"), "message names no file or key"),
        (ValueError(""), "message is empty"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "case.txt"), "UnicodeDecodeError"),
        (KeyError("case.txt"), "KeyError"),
        (SystemExit(3), "exit status 3"),
    ],
)
def test_what_is_no_clear_refusal_fails(tmp_path, error, bucket):
    def run(case):
        raise error

    verdict = judge(Target("t", lambda rng: Case({}), run), Case({}, names=("case.txt",)), tmp_path)
    assert verdict.status == "failed"
    assert verdict.bucket.startswith(bucket)


@pytest.mark.parametrize(
    ("said", "bucket"),
    [
        ("case.txt: line 1\nline 2", "message has several lines"),
        ("case.txt" * 500, "message has more than 2,000 characters"),
        ("case.txt \x1b[31m", "message holds control characters"),
    ],
)
def test_what_a_command_must_not_print_fails(tmp_path, said, bucket):
    def run(case):
        print(f"remask build: {said}", file=sys.stderr)
        raise SystemExit(2)

    verdict = judge(Target("t", lambda rng: Case({}), run), Case({}, names=("case.txt",)), tmp_path)
    assert verdict.status == "failed"
    assert verdict.bucket.startswith(bucket)
