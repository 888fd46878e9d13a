"""The suite of one's own text, on a model that says what it is told to and on a build's rows."""

import dataclasses
import json

import numpy as np
import pytest

from remask.evaluation.decoder import Decoder
from remask.evaluation.registry import make_suite
from remask.evaluation.suite import left_out
from remask.evaluation.suites import text
from remask.pipeline.sandbox.run import is_available
from remask.pipeline.sources.text import TextSource
from tests.evaluation.folders import explained
from tests.evaluation.speakers import Speaker
from tests.sums import PROMPT, RESPONSE, make_sums, write_sums, write_word_tokenizer
from tests.text_folders import write_rows, write_text_tokenizer

needs_sandbox = pytest.mark.skipif(is_available() is not None, reason=str(is_available()))
ROWS = [
    {"question": "Half of 3", "answer": "1.5", "tests": ["assert double(2) == 4"]},
    {"question": "4 - 1", "answer": "3", "tests": ["assert double(3) == 6"]},
    {"question": "A hundred", "answer": "100.0", "tests": ["assert double(1) == 2"]},
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_text_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def suite(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def make(rows=ROWS, **settings):
        data = settings.pop("data", None) or write_rows(tmp_path / "own.jsonl", *rows)
        values = {"kind": "text", "data": data, "tokenizer": tokenizer, "chat": True}
        values |= {"prompt": "{question}?", "answer": "{answer}", "gen_length": 24}
        return make_suite(values | settings, "suites: own")

    return make


def verdicts(made, *said):
    answers = dict(zip(("Half of 3", "4 - 1", "A hundred"), said, strict=True))
    model = Speaker(made.codec, answers)
    made.check(model)
    decoder = made.adapt(Decoder(policy="absorbing", max_steps=12))
    predictions = made.predict(model, range(made.num_samples), decoder)
    scores = explained(made, made.score(predictions))
    share = np.mean(predictions["is_right"].to_pylist())
    assert next(s for s in scores if s.metric == "accuracy").value == pytest.approx(share)
    return [(row["answer"], row["is_right"]) for row in predictions.to_pylist()]


def test_exact_ignores_white_space_around_an_answer_alone(suite):
    assert verdicts(suite(), " 1.5\n", "3.0", "100.0") == [
        ("1.5", True), ("3.0", False), ("100.0", True)
    ]  # fmt: skip


def test_numbers_are_compared_as_numbers(suite):
    assert verdicts(suite(judge="number"), "It is 3/2", "three", "1 or 100") == [
        ("3/2", True), (None, False), ("100", True)
    ]  # fmt: skip


def test_a_pattern_is_searched_for(suite):
    made = suite(judge="regex", answer=r"(?i)answer\W+{answer}\b")
    assert verdicts(made, "Answer: 1.5", "3", "answer = 100.05") == [
        ("Answer: 1.5", True), ("3", False), ("answer = 100.05", False)
    ]  # fmt: skip


def test_answers_are_compared_as_mathematics(suite):
    assert verdicts(suite(judge="math"), r"\frac32", r"It is \boxed{2+1}", "99") == [
        (r"\frac32", True), ("2+1", True), ("99", False)
    ]  # fmt: skip


@needs_sandbox
def test_programs_are_run_against_a_list_of_tests(suite):
    made = suite(judge="program", answer="{tests}", gen_length=40)
    good, bad = "def double(x): return 2 * x", "def double(x): return x"
    rows = verdicts(made, good, bad, "no")
    assert [is_right for _, is_right in rows] == [True, False, False]
    assert not made.is_judged_along


def test_programs_are_not_run_without_a_sandbox(suite, monkeypatch):
    monkeypatch.setattr(text, "is_available", lambda: "bubblewrap is missing")
    made = suite(judge="program", answer="{tests}")
    with pytest.raises(ValueError, match="runs generated code, and there is no sandbox: bubblewra"):
        made.check(Speaker(made.codec, {"a": "b"}))


def test_exact_knows_how_the_tokenizer_writes(tmp_path, monkeypatch):
    """A tokenizer of words writes a space between any two of them."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    values = {
        "kind": "text",
        "data": write_sums(tmp_path / "sums.jsonl", 3),
        "tokenizer": write_word_tokenizer(tmp_path / "words"),
        "prompt": "{question}",
        "answer": RESPONSE,
    }
    made = make_suite(values, "own")
    answer = make_sums(1)[0]["answer"]
    with made.judging() as judge:
        assert judge(made.questions[0], " ".join(answer)).is_right
        assert judge(made.questions[0], answer).is_right
        assert not judge(made.questions[0], "").is_right
    unknown = write_rows(tmp_path / "unknown.jsonl", {"question": "1", "answer": "x"})
    made = make_suite(values | {"data": unknown}, "own")
    with made.judging() as judge:
        assert not judge(made.questions[0], "").is_right


@pytest.mark.parametrize("changes", [{}, {"prompt": "?"}, {"max_length": 22}])
def test_held_out_rows_are_those_that_the_build_holds_out(suite, tmp_path, changes):
    shared = {"data": write_sums(tmp_path / "sums.jsonl", 120), "prompt": PROMPT, "chat": False}
    shared |= {"held_out_share": 0.2} | changes
    made = suite(**shared, part="held_out")
    source = TextSource(**shared, tokenizer=made.tokenizer, response=RESPONSE)
    rng = np.random.default_rng(0)
    rows = {split: source.examples(split, 0, 120, rng) for split in ("train", "held_out")}
    numbers = {split: [int(x[-9:]) + 1 for x in rows[split].example_ids] for split in rows}
    asked = [int(question.sample_id.removeprefix("row-")) for question in made.questions]
    assert asked == numbers["held_out"]
    assert asked
    assert not set(asked) & set(numbers["train"])
    prompts = [
        x[:n].tolist()
        for x, n in zip(rows["held_out"].target, rows["held_out"].prompt_lengths, strict=True)
    ]
    assert [made.prompt_ids(question) for question in made.questions] == prompts
    whole = suite(**shared)
    assert len(whole.questions) == len(asked) + len(numbers["train"])


def test_rows_that_cannot_be_asked_are_named_in_the_results(suite):
    rows = [*ROWS, {"question": None, "answer": "1"}, {"question": "<|mdm_mask|>", "answer": "1"}]
    made = suite(rows)
    assert made.num_samples == 3
    model = Speaker(made.codec, {"Half of 3": "1", "4 - 1": "1", "A hundred": "1"})
    decoder = made.adapt(Decoder(policy="absorbing", max_steps=3))
    reasons = [left_out(made.predict(model, x, decoder)) for x in (range(2), range(2, 3))]
    assert [len(x) for x in reasons] == [2, 0]
    assert reasons[0][0].startswith("own-train-000000003: it lacks a field")


def test_identity_follows_contents_not_paths(suite, tmp_path):
    base = suite()
    copy = write_rows(tmp_path / "copy.jsonl", *ROWS)
    assert dataclasses.replace(base, data=copy).identity() == base.identity()
    others = [{"judge": "number"}, {"answer": " {answer}"}, {"prompt": "{question}"}, {"limit": 2}]
    assert base.identity() not in [suite(**other).identity() for other in others]
    json.dumps(base.identity())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_of_other_formats_are_read(suite, tmp_path, suffix):
    import polars as pl

    path = tmp_path / f"own.{suffix}"
    frame = pl.DataFrame([{"question": "a", "answer": "b"}])
    frame.write_csv(path) if suffix == "csv" else frame.write_parquet(path)
    assert [x.text for x in suite(data=str(path)).questions] == ["a?"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"judge": "taste"}, "judge must be one of .*'exact', 'number'.* got 'taste'"),
        ({"part": "some"}, "part must be one of"),
        ({"prompt": "{q}"}, r"row 1 does not fit a template \('q'\); it has the fields \['answer'"),
        ({"answer": "{question!q}"}, "row 1 does not fit a template"),
        ({"judge": "number", "answer": "none"}, "own.jsonl: row 1: the answer has no number"),
        ({"judge": "regex", "answer": "("}, "own.jsonl: row 1: .* is no regular expression: unclo"),
        ({"judge": "regex", "answer": "(?=a)"}, "look-around"),
        ({"judge": "program", "answer": "x ="}, "row 1: the tests are no Python"),
        ({"judge": "program", "answer": "{answer}"}, "row 1: the tests use nothing that a program"),
        ({"max_length": 3}, "own.jsonl has no row that can be asked; raise"),
        ({"part": "held_out", "held_out_share": 1e-9}, "has no held-out row that can be asked"),
        ({"held_out_share": 0.0}, "held_out_share must lie in"),
        ({"data": "nowhere.jsonl"}, "cannot load nowhere.jsonl"),
        ({"limit": 4}, "own.jsonl holds 3 questions, limit is 4"),
        ({"tokenizer": "./nowhere"}, "there is no such folder"),
    ],
)
def test_bad_requests_are_named(suite, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        _ = suite(**settings).num_samples
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'{"question": "a"}\n[1]\n', b"{"])
def test_damaged_files_are_named(suite, tmp_path, content):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot load .*bad.jsonl: ") as caught:
        _ = suite(data=str(path)).num_samples
    assert "\n" not in str(caught.value)


def test_rows_with_different_fields_are_read_as_one_table(suite, tmp_path):
    """A field that a row lacks has no value there, so such a row is left out."""
    rows = [{"question": "a", "answer": "b"}, {"question": "c", "reply": "d"}]
    made = suite(rows)
    assert [x.text for x in made.questions] == ["a?"]
