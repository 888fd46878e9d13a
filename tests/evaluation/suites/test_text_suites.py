"""Text suites on a model that says what it is told to: prompts, judging, scores, refusals."""

import dataclasses
import json

import numpy as np
import pytest

from remask.evaluation.decoder import Decoder
from remask.evaluation.registry import SUITES, find_suite, make_suite
from remask.evaluation.suites import program_suite
from remask.evaluation.suites.math import MathSuite
from remask.evaluation.suites.text_showcase import choose
from remask.evaluation.suites.text_suite import TextSuite
from remask.pipeline.sandbox.run import is_available
from remask.pipeline.sources.text import TextSource
from tests.evaluation.folders import explained
from tests.evaluation.speakers import Speaker
from tests.text_folders import EOS, EOT, write_rows, write_text_tokenizer

needs_sandbox = pytest.mark.skipif(is_available() is not None, reason=str(is_available()))
MATH = [
    {"problem": "Half of 3?", "solution": r"\boxed{\frac32}", "subject": "Algebra", "level": 1},
    {"problem": "4 - 1?", "solution": r"\boxed{3}", "subject": "Algebra", "level": 5},
    {"problem": "Sides of a square?", "solution": r"\boxed{4}", "subject": "Geometry", "level": 1},
    {"problem": "2 + 2?", "solution": r"\boxed{4}", "subject": "Number & Sums", "level": 5},
]
SAID = {
    "Half of 3": r"So \boxed{1.5}.",
    "4 - 1": r"So \boxed{4}.",
    "Sides of": "I do not know.",
    "2 + 2": r"The answer is $2^2$.",
}
GSM8K = [
    {"question": "Eggs?", "answer": "He has 2 * 3 = <<2*3=6>>6 eggs.\n#### 1,006"},
    {"question": "Hens?", "answer": "One.\n#### 1"},
]
ARC = [
    {
        "id": f"Q{i}",
        "question": question,
        "choices": {"text": ["a stone", "the sun", "a fish"], "label": ["A", "B", "C"]},
        "answerKey": "B",
    }
    for i, question in enumerate(["What is hot?", "What is a star?"])
]
MBPP = [
    {"task_id": n, "text": f"Double it ({n}).", "code": "def double(x):\n    return 2 * x",
     "test_list": ["assert double(3) == 6"]}
    for n in (1, 2, 3)
]  # fmt: skip
HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": 'from math import pi\n\ndef area(r):\n    """Of a circle."""\n',
    "entry_point": "area",
    "canonical_solution": "    return pi * r * r\n",
    "test": "def check(candidate):\n    assert abs(candidate(1) - pi) < 1e-9\n",
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_text_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def suite(tokenizer, tmp_path):
    def make(kind, rows, **settings):
        data = write_rows(tmp_path / f"{kind}.jsonl", *rows)
        values = {"kind": kind, "data": data, "tokenizer": tokenizer, **settings}
        return make_suite(values, "suites: x")

    return make


def run(suite, answers, drafts=None, **decoder):
    settings = {"policy": "absorbing"} | decoder
    model = Speaker(suite.codec, answers, drafts)
    adapted = suite.adapt(Decoder(**settings))
    suite.check(model)
    predictions = suite.predict(model, range(suite.num_samples), adapted)
    figures = {(s.metric, s.by, s.at): s for s in explained(suite, suite.score(predictions))}
    return predictions.to_pylist(), figures


def test_math_is_judged_as_mathematics_with_scores_by_subject_and_level(suite):
    rows, figures = run(suite("math", MATH, gen_length=24, steps=12), SAID)
    assert [row["is_right"] for row in rows] == [True, False, False, True]
    assert [row["answer"] for row in rows] == ["1.5", "4", None, "2^2"]
    assert rows[0]["response"] == r"So \boxed{1.5}."
    assert {row["forward_passes"] for row in rows} == {12}
    assert (rows[0]["answer_tokens"], rows[0]["has_ended"]) == (15, True)
    assert len({row["prompt_sha256"] for row in rows}) == 4
    value = {key: (s.value, s.count) for key, s in figures.items()}
    assert value["accuracy", None, None] == (0.5, 4)
    assert value["accuracy_algebra", None, None] == (0.5, 2)
    assert value["accuracy_geometry", None, None] == (0.0, 1)
    assert value["accuracy_number_sums", None, None] == (1.0, 1)
    assert value["answered", None, None] == (0.75, 4)
    assert value["accuracy", "level", 1.0] == (0.5, 2)
    assert value["remasked", None, None] == (0.0, 4)
    assert value["revealed", None, None] == (24.0, 4)
    low, high = figures["accuracy", None, None].low, figures["accuracy", None, None].high
    assert 0.15 < low < 0.5 < high < 0.85
    curve = {at: s.value for (_, by, at), s in figures.items() if by == "forward passes"}
    # An answer counts from the pass that completes it: 15 tokens of the first and its end are there
    # after 8 passes of 2, the fourth's 21 after 11.
    assert curve == {2: 0, 3: 0, 5: 0, 6: 0, 8: 0.25, 9: 0.25, 11: 0.5, 12: 0.5}


def test_what_revision_replaced_is_counted(suite):
    drafts = {"4 - 1": r"So \boxed{9}."}
    said = SAID | {"4 - 1": r"So \boxed{3}."}
    rows, figures = run(
        suite("math", MATH, gen_length=24, steps=12),
        said,
        drafts,
        policy="revision",
        settings={"reveal_count": 12},
    )
    assert rows[1]["is_right"]
    assert (rows[1]["remasked"], rows[1]["replaced"], rows[1]["restored"]) == (1, 1, 0)
    assert figures["replaced", None, None].value == 0.25
    assert rows[0]["forward_passes"] == 3  # two to reveal, one without an action


def test_an_answer_put_right_is_shown_token_by_token(suite):
    made = suite("math", MATH[1:2], gen_length=24, steps=12)
    said, drafts = {"4 - 1": "So \\boxed{3}.\n"}, {"4 - 1": "So \\boxed{9}.\n"}
    decoder = made.adapt(Decoder(settings={"reveal_count": 12}))
    predictions = made.predict(Speaker(made.codec, said, drafts), range(1), decoder)
    figures = {s.metric: s.value for s in made.score(predictions) if s.by is None}
    assert (figures["accuracy"], figures["as_first_written"]) == (1.0, 0.0)
    (shown,) = json.loads(json.dumps(made.showcase(predictions)))
    sample = made.player_sample(shown)
    assert sample.answer.prompt.startswith("4 - 1?\n\nReason step by step")
    assert (sample.answer.response, sample.answer.is_right) == ("So \\boxed{3}.\n", True)
    assert (sample.answer.found, sample.note) == ("3", "put right by revision")
    texts = ["".join(sample.symbols[token] for token in state) for state in sample.states]
    length = len("So \\boxed{3}.\n")
    assert texts[0] == "·" * (length + 1), "up to the first end token"
    assert [text[:length] for text in texts[2:5]] == [
        "So \\boxed{9}.\n", "So \\boxed{·}.\n", "So \\boxed{3}.\n",
    ]  # fmt: skip
    assert texts[-1].endswith("\n<|endoftext|>")
    assert sample.telling == (True, True, 1)


def test_all_runs_show_the_first_questions_and_right_ones_put_right(suite):
    def row(name, is_right, as_written, remasked):
        facts = {"is_right": is_right, "right_as_written": as_written, "remasked": remasked}
        return facts | {"name": name}

    rows = [
        row("first", False, False, 0), row("second", True, True, 0), row("kept", True, True, 9),
        row("repaired", True, False, 1), row("broken", False, True, 3),
        row("idle", False, False, 0),
    ]  # fmt: skip
    names = [row["name"] for row in choose(rows)]
    assert names == ["first", "second", "repaired", "kept", "broken", "idle"]


def test_the_showcase_of_an_earlier_version_is_no_error(suite):
    old = {"sample_id": "1", "response": "x", "answer": None, "is_right": False, "verdict": ""}
    assert suite("math", MATH).player_sample(old) is None


def test_gsm8k_finds_the_number(suite):
    said = {"Eggs": "Six.\n#### 1006", "Hens": "I count 2 hens"}
    rows, figures = run(suite("gsm8k", GSM8K, gen_length=16), said)
    assert [row["answer"] for row in rows] == ["1006", "2"]
    assert figures["accuracy", None, None].value == 0.5
    assert suite("gsm8k", GSM8K).questions[0].worked == "He has 2 * 3 = 6 eggs.\n#### 1006"


def test_arc_by_generation_takes_the_choice_settled_on(suite):
    rows, _ = run(suite("arc_generation", ARC, gen_length=20), {"hot": "It is (B).", "star": "C."})
    assert [(row["answer"], row["is_right"]) for row in rows] == [("B", True), ("C", False)]


@needs_sandbox
def test_mbpp_runs_programs_against_their_tests(suite):
    said = {
        "(1)": "[BEGIN]\ndef double(x): return x + x\n[DONE]",
        "(2)": "def double(x): return x",
        "(3)": "No.",
    }
    rows, figures = run(suite("mbpp", MBPP, part="all", gen_length=50, steps=5), said)
    assert [row["verdict"] for row in rows] == ["passed", "failed", "error"]
    assert rows[0]["answer"] == "def double(x): return x + x"
    assert figures["pass_at_1", None, None].value == pytest.approx(1 / 3)
    assert not any(by == "forward passes" for _, by, _ in figures)


@needs_sandbox
def test_humaneval_takes_a_whole_function(suite):
    said = {"circle": "```python\ndef area(r):\n    return pi * r**2\n```"}
    rows, figures = run(suite("humaneval", [HUMANEVAL], gen_length=60, steps=4), said)
    assert rows[0]["verdict"] == "passed"
    assert figures["pass_at_1", None, None].value == 1.0


def test_shots_precede_the_question_and_never_contain_it(suite, tmp_path):
    examples = write_rows(tmp_path / "train.jsonl", *MATH)
    plain = suite("math", MATH, chat=False, bos=False, shots=2, examples=examples)
    asked = plain.questions[0]
    assert plain.codec.inner.decode(plain.prompt_ids(asked)) == (
        "Problem:\n4 - 1?\n\nSolution: \\boxed{3}\n\n"
        "Problem:\nSides of a square?\n\nSolution: \\boxed{4}\n\n"
        "Problem:\nHalf of 3?\n\nSolution:"
    )
    chat = dataclasses.replace(plain, chat=True, bos=True)
    text = chat.codec.inner.decode(chat.prompt_ids(asked), skip_special_tokens=True)
    assert text.startswith("user: 4 - 1?\n\nReason step by step")
    assert "assistant: \\boxed{3}user: Sides" in text
    assert text.endswith("assistant: ")
    own = suite("math", MATH, chat=False, template="Q: {question} A:", shots=1)
    assert own.codec.inner.decode(own.prompt_ids(asked)[1:]).endswith("\n\nQ: Half of 3? A:")
    with pytest.raises(ValueError, match="math: 9 shots are asked for, but there are 4 worked"):
        suite("math", MATH, shots=9).prompt_ids(asked)
    with pytest.raises(ValueError, match="template must contain {question}, got 'Q:'"):
        suite("math", MATH, template="Q:")


@pytest.mark.parametrize("kind", ["math", "gsm8k", "mbpp", "arc_generation"])
def test_our_worked_examples_are_right(kind, suite):
    rows = {"math": MATH, "gsm8k": GSM8K, "mbpp": MBPP, "arc_generation": ARC}[kind]
    made = suite(kind, rows)
    examples = made.own_examples()
    assert len(examples) >= 3
    if kind == "mbpp":
        if is_available() is None:
            assert {made.run(e, e.worked).status for e in examples} == {"passed"}
        return
    with made.judging() as judge:
        for example in examples:
            assert judge(example, example.worked).is_right, example.text


PRESETS = {
    kind: made.PRESETS
    for kind in SUITES
    if (made := find_suite(kind)) is not None and issubclass(made, TextSuite)
}


@pytest.mark.parametrize(("kind", "preset"), [(k, p) for k, ps in PRESETS.items() for p in ps])
def test_presets_are_settings_of_their_suite(kind, preset, tokenizer, tmp_path):
    values = {"kind": kind, "preset": preset, "data": "x.jsonl", "tokenizer": tokenizer}
    made = make_suite(values, "suites: x")
    for name, value in PRESETS[kind][preset].items():
        assert getattr(made, name) == value
    assert make_suite(values | {"shots": 1}, "suites: x").shots == 1


def test_published_settings_are_those_published(tokenizer):
    def settings(kind, preset):
        return PRESETS[kind][preset]

    assert settings("math", "llada_base").items() >= {("gen_length", 1024), ("shots", 4)}
    instruct = settings("math", "llada_instruct")
    assert (instruct["gen_length"], instruct["steps"], instruct["ends"]) == (512, 512, "late")
    assert settings("math", "llada_instruct_blocks")["block_length"] == 64
    assert settings("mbpp", "llada_instruct").items() >= {("gen_length", 256), ("shots", 3)}
    assert settings("arc", "llada_base").items() >= {("mc_num", 128), ("cfg", 0.5)}
    with pytest.raises(ValueError, match=r"x: preset must be one of \['paper'.*got 'best'"):
        make_suite({"kind": "math", "preset": "best", "tokenizer": tokenizer}, "x")


def test_a_decoder_gets_the_suites_budget_blocks_and_ends(suite):
    made = suite("math", MATH, gen_length=32, steps=16, block_length=8, ends="late")
    absorbing = made.adapt(Decoder(policy="absorbing"))
    assert (absorbing.max_steps, absorbing.settings["block_length"]) == (16, 8)
    assert absorbing.make_policy().sampling.late_ids == (EOS, EOT)
    rm = made.adapt(Decoder(settings={"reveal_count": 4, "block_length": 16}))
    assert (rm.max_steps, rm.settings["block_length"]) == (15, 16)  # its closing pass is the 16th
    p2 = made.adapt(Decoder(policy="p2", max_steps=7))
    assert (p2.max_steps, p2.make_policy().sampling.temperature) == (7, 1.0)
    free = suite("math", MATH, gen_length=32, ends="never").adapt(Decoder(policy="remdm"))
    assert free.make_policy().sampling.never_ids == (EOS, EOT)
    assert free.make_policy().sampling.top_p == 0.9
    with pytest.raises(ValueError, match="reveals every MASK at once here, in the first of 15"):
        made.adapt(Decoder(settings={"margin": 1.0}))
    with pytest.raises(ValueError, match="32 tokens in blocks of 8 need at least 4 steps, got 3"):
        made.adapt(Decoder(policy="absorbing", max_steps=3))
    with pytest.raises(ValueError, match="math starts from MASKs alone: start must be given"):
        made.adapt(Decoder(policy="absorbing", start="oracle"))


def test_identity_follows_contents_not_paths(suite, tokenizer, tmp_path):
    base = suite("math", MATH)
    elsewhere = write_rows(tmp_path / "copy.jsonl", *MATH)
    other_tokens = write_text_tokenizer(tmp_path / "tokenizer", chat=False)
    assert dataclasses.replace(base, data=elsewhere).identity() == base.identity()
    changed = write_rows(
        tmp_path / "changed.jsonl", *MATH[:3], MATH[3] | {"solution": "\\boxed{5}"}
    )
    others = [
        {"data": changed}, {"limit": 3}, {"shots": 1}, {"template": "{question}"}, {"chat": False},
        {"gen_length": 99}, {"ends": "late"}, {"tokenizer": other_tokens}, {"stops": ("x",)},
    ]  # fmt: skip
    identities = [dataclasses.replace(base, **change).identity() for change in others]
    assert base.identity() not in identities
    named = suite("math", MATH, preset="paper")
    assert named.identity() == suite("math", MATH, **MathSuite.PRESETS["paper"]).identity()
    assert json.loads(json.dumps(suite("mbpp", MBPP, part="all").identity()))["unsafe"] is False


def test_bad_input_is_named(suite, tokenizer, tmp_path, monkeypatch):
    short = {k: v for k, v in MATH[1].items() if k != "solution"}
    with pytest.raises(ValueError, match=r"math.jsonl: row 2 has no field 'solution'; it has \["):
        _ = suite("math", [MATH[0], short]).num_samples
    with pytest.raises(ValueError, match="math.jsonl holds no rows"):
        _ = suite("math", []).num_samples
    with pytest.raises(ValueError, match="math.jsonl holds 4 questions, limit is 9"):
        _ = suite("math", MATH, limit=9).num_samples
    with pytest.raises(ValueError, match=r"has no subject 'Alchemy'; it has \['Algebra'"):
        _ = suite("math", MATH, subjects=["Alchemy"]).num_samples
    with pytest.raises(ValueError, match="problem 1 has no answer"):
        _ = suite("math", [MATH[0] | {"solution": "none"}]).num_samples
    with pytest.raises(ValueError, match="data 'no/such' cannot be loaded from the hub: .*local"):
        _ = make_suite({"kind": "math", "data": "no/such", "tokenizer": tokenizer}, "x").num_samples
    with pytest.raises(ValueError, match="has no mask token <gone>"):
        suite("math", MATH, mask_token="<gone>").identity()
    made = suite("math", MATH, gen_length=100)
    model = Speaker(made.codec, SAID)
    model.max_length = 170
    with pytest.raises(ValueError, match="^3: a prompt of .* leaves room for .*gen_length is 100"):
        made.check(model)
    model.mask_id = 5
    with pytest.raises(ValueError, match="the model at 5; use the tokenizer that the model"):
        made.check(model)
    with pytest.raises(ValueError, match="gen_length must be at least 1, got 0"):
        suite("math", MATH, gen_length=0)


def test_programs_are_not_run_without_a_sandbox(suite, monkeypatch):
    monkeypatch.setattr(program_suite, "is_available", lambda: "bubblewrap is missing")
    made = suite("mbpp", MBPP, part="all")
    with pytest.raises(ValueError, match="mbpp runs generated code, and there is no sandbox: bubb"):
        made.check(Speaker(made.codec, {"Double": "no"}))
    allowed = suite("mbpp", MBPP, part="all", unsafe=True)
    allowed.check(Speaker(allowed.codec, {"Double": "no"}))


@pytest.mark.parametrize("chat", [True, False], ids=["chat", "plain"])
@pytest.mark.parametrize(
    ("benchmark", "rows"),
    [("math", MATH), ("gsm8k", GSM8K), ("mbpp", [{**MBPP[0], "task_id": 10}]), ("arc", ARC)],
    ids=["math", "gsm8k", "mbpp", "arc"],
)
def test_training_asks_and_answers_as_the_suite_does(suite, benchmark, rows, chat):
    more = {"mbpp": {"part": "train"}, "arc": {"scored": "letters"}}.get(benchmark, {})
    asking = suite(benchmark, rows, chat=chat, **more)
    source = TextSource(
        data=asking.data,
        benchmark=benchmark,
        tokenizer=asking.tokenizer,
        chat=chat,
        held_out_share=0.0,
        append_eos=False,
    )
    examples = source.examples("train", 0, len(rows), np.random.default_rng(0))
    targets = zip(examples.target, examples.prompt_lengths, examples.lengths, strict=True)
    asked, answered = [], []
    for row, prompt_length, length in targets:
        asked.append(row[:prompt_length].tolist())
        answered.append(row[prompt_length:length].tolist())
    assert len(asked) == len(rows)
    assert asked == [asking.prompt_ids(question) for question in asking.questions]
    # The answer is what a worked example of the suite would show.
    codec = asking.codec
    assert answered == [
        codec.encode(x.worked) + codec.turn_end if chat else codec.encode(f" {x.worked}")
        for x in asking.questions
    ]


def test_the_presets_without_shots_ask_as_training_does(suite):
    for kind, rows in (("math", MATH), ("gsm8k", GSM8K), ("mbpp", MBPP), ("arc", ARC)):
        asking = suite(kind, rows, preset="paper")
        assert (asking.shots, asking.chat, asking.template) == (0, True, None)
        if kind == "arc":
            assert asking.scored == "letters"
