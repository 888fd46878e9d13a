"""Which responses to a benchmark are right, as rows of tokens."""

import numpy as np
import pytest

from remask.pipeline import read_rows, rollout
from remask.pipeline.benchmarks.mbpp import mbpp_part
from remask.pipeline.rollout_recipe import DecodeSpread, RolloutRecipe, RolloutRun
from remask.pipeline.sandbox.run import is_available
from remask.pipeline.sources import text_checker
from remask.pipeline.sources.text import TextSource
from tests.text_folders import EOS, write_llada, write_rows, write_text_tokenizer

needs_sandbox = pytest.mark.skipif(is_available() is not None, reason=str(is_available()))

MATH = [
    {"problem": "One half?", "solution": "It is $\\boxed{\\frac12}$.", "level": "Level 1",
     "type": "Algebra"},
    {"problem": "Three?", "solution": "It is $\\boxed{3}$.", "level": "Level 1",
     "type": "Algebra"},
]  # fmt: skip
GSM8K = [{"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"}]
TASKS = [
    {"task_id": i, "text": "Multiply.", "code": f"def times(x):\n  return {i} * x",
     "test_list": [f"assert times(4) == {4 * i}"], "test_setup_code": ""}
    for i in range(30) if mbpp_part(i, 0) == "train"
]  # fmt: skip


@pytest.fixture
def make(tmp_path):
    tokenizer = write_text_tokenizer(tmp_path / "tokenizer")

    def make(benchmark, rows, **settings):
        data = write_rows(tmp_path / f"{benchmark}-2.jsonl", *rows)
        settings = {"tokenizer": tokenizer, "held_out_share": 0.0, "eos_bucket": 256} | settings
        return TextSource(data=data, benchmark=benchmark, **settings)

    return make


def verdict(source, row, response, ends=None):
    """Is a response right that is filled up with end tokens, or with the ids of `ends`?"""
    examples = source.examples("train", 0, 9, np.random.default_rng(0))
    example = examples.example(row)
    ids = [ord(x) for x in response]
    room = example.length - example.prompt_length - len(ids)
    tail = [EOS] * room if ends is None else (ends * room)[:room]
    answer = np.array([*example.target[: example.prompt_length], *ids, *tail])
    assert source.checker().is_right(example, example.target)
    assert np.array_equal(source.checker().nearest(example, answer, answer), example.target)
    return source.checker().is_right(example, answer)


@pytest.mark.parametrize(
    ("row", "response", "is_right"),
    [
        (0, " Half of one: $\\boxed{0.5}$.", True),
        (0, " It is $\\boxed{3}$.", False),
        (1, " It is $\\boxed{3}$.", True),
        (1, " It is $\\boxed{\\frac{6}{2}}$, no: $\\boxed{4}$.", False),
        (1, " It is three.", False),
    ],
)
def test_final_answers_are_compared_as_mathematics(make, row, response, is_right):
    assert verdict(make("math", MATH), row, response) == is_right


@pytest.mark.parametrize(
    ("response", "is_right"), [(" Four.\n#### 4.0", True), (" Five.\n#### 5", False)]
)
def test_numbers_are_compared_by_value(make, response, is_right):
    assert verdict(make("gsm8k", GSM8K), 0, response) == is_right


@needs_sandbox
@pytest.mark.parametrize(
    ("factor", "is_right"), [("0 + {}", True), ("1 + {}", False), ("undefined + {}", False)]
)
def test_programs_are_run_against_their_own_tests(make, factor, is_right):
    for row in (0, 2):
        factors = factor.format(TASKS[row]["task_id"])
        response = f"[BEGIN]\ndef times(x):\n  return x * ({factors})\n[DONE]"
        assert verdict(make("mbpp", TASKS), row, response) == is_right


@pytest.mark.parametrize(
    ("ends", "is_right"),
    [([EOS], True), ([EOS, ord("x")], False), ([EOS, EOS, EOS, ord("x")], False), ([32], False)],
)
def test_a_right_row_has_nothing_after_its_end(make, ends, is_right):
    assert verdict(make("math", MATH), 1, " So $\\boxed{3}$.", ends) == is_right


@pytest.mark.parametrize("benchmark", ["arc", None])
def test_other_texts_have_no_checker(benchmark):
    source = TextSource(data="rows.jsonl", tokenizer="letters", benchmark=benchmark)
    assert source.checker() is None


def test_programs_are_not_run_without_a_sandbox(make, monkeypatch):
    monkeypatch.setattr(text_checker, "is_available", lambda: "bubblewrap is missing; install it")
    checker = make("mbpp", TASKS).checker()
    with pytest.raises(ValueError, match="nearest_right runs generated code: bubblewrap is missi"):
        checker.check_machine()


def test_answers_are_not_compared_without_math_verify(make, monkeypatch):
    def missing():
        raise RuntimeError("answers are compared by math-verify, which is missing")

    monkeypatch.setattr(text_checker, "_answer_checker", missing)
    with pytest.raises(ValueError, match="math-verify, which is missing"):
        make("gsm8k", GSM8K).checker().check_machine()


def test_a_rollout_of_a_benchmark_keeps_the_given_target_of_wrong_decodes(make, tmp_path):
    model = write_llada(tmp_path / "llada")
    source = make("math", MATH, tokenizer=model, eos_bucket=None)
    recipe = RolloutRecipe(
        output=str(tmp_path / "data"),
        checkpoint=model,
        source=source,
        targets="nearest_right",
        decoders=DecodeSpread(steps=(3,), reveal_within=(1.0,), margin=(0.0,), temperature=(0.7,)),
        run=RolloutRun(workers=0),
    )
    rollout.run(recipe)
    examples = source.examples("train", 0, 9, np.random.default_rng(0))
    rows = list(read_rows(f"{recipe.output}/shards/train-00000-00.parquet"))
    assert [row.example_id for row in rows] == list(examples.example_ids)
    for i, row in enumerate(rows):
        assert np.array_equal(row.target, examples.example(i).target)
