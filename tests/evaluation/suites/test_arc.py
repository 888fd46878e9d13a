"""ARC by likelihood: what is scored, and that lm-evaluation-harness finds the same."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import yaml

from remask.evaluation.decode.likelihood import Likelihood, log_likelihood
from remask.evaluation.decoder import Decoder
from remask.evaluation.registry import make_suite
from remask.models import load
from tests.text_folders import write_llada, write_rows

ROWS = [
    {
        "id": f"Q{i}",
        "question": question,
        "choices": {"text": list(texts), "label": list("ABCD")},
        "answerKey": answer,
    }
    for i, (question, texts, answer) in enumerate(
        [
            ("What is hot?", ("stone", "the sun", "a fish", "ice"), "B"),
            ("What swims?", ("a bird in the air", "a hat", "a fish", "it"), "C"),
            ("What is cold?", ("ice", "fire", "the warm sun", "a lamp"), "A"),
        ]
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_llada(tmp_path_factory.mktemp("models") / "llada")


@pytest.fixture
def suite(folder, tmp_path):
    data = write_rows(tmp_path / "arc.jsonl", *ROWS)

    def make(**settings):
        values = {"kind": "arc", "data": data, "tokenizer": folder, "mc_num": 8, "chat": False}
        return make_suite(values | settings, "suites: arc")

    return make


def predict(suite, model, **decoder):
    suite.check(model)
    return suite.predict(model, range(suite.num_samples), suite.adapt(Decoder(**decoder)))


def test_texts_of_the_choices_are_scored_after_the_question(suite, folder):
    made, model = suite(cfg=0.5, seed=4), load(folder)
    rows = predict(made, model, batch_size=3).to_pylist()
    prefix, target = made.codec.encode_pair("Question: What is hot?\nAnswer:", " the sun", bos=True)
    config = Likelihood(mc_num=8, cfg=0.5, seed=4)
    assert rows[0]["log_likelihoods"][1] == pytest.approx(
        log_likelihood(model, prefix, target, config), abs=1e-4
    )
    assert rows[0]["forward_passes"] == 4 * 8 * 2
    assert rows[0]["characters"] == [5, 7, 6, 3]


def test_letters_take_one_pass_each_and_the_choices_are_listed(suite, folder):
    for chat in (True, False):
        made = suite(scored="letters", chat=chat)
        text = made.codec.inner.decode(made.prompt_ids(made.questions[0]))
        assert "What is hot?\nA. stone\nB. the sun\nC. a fish\nD. ice\n" in text
        (prefix, target), *_ = made.pairs(made.questions[0])
        assert made.codec.inner.decode(target) == ("A" if chat else " A")
        assert made.codec.inner.decode(prefix).endswith("assistant: " if chat else "Answer:")
    rows = predict(suite(scored="letters", chat=True), load(folder)).to_pylist()
    assert rows[0]["forward_passes"] == 4


def test_the_likeliest_choice_counts_and_also_by_length(suite):
    made = suite()
    table = {
        "sample_id": ["a", "b"],
        "labels": [["A", "B"], ["A", "B"]],
        "log_likelihoods": [[-3.0, -4.0], [-3.0, -4.0]],
        "characters": [[1, 2], [3, 4]],
        "gold": ["A", "B"],
        "forward_passes": [2, 2],
    }
    figures = {s.metric: s.value for s in made.score(pa.table(table))}
    # By character: -3 and -2, so B; then -1 and -1, where the first counts.
    assert figures == {"accuracy": 0.5, "accuracy_by_length": 0.0, "forward_passes": 2.0}


def test_decoders_do_not_matter(suite):
    made = suite()
    assert made.adapt(Decoder()) == made.adapt(Decoder(policy="p2", max_steps=9, seed=3))


def test_a_prompt_without_room_is_named(suite, folder):
    made, model = suite(), load(folder)
    model.max_length = 20
    with pytest.raises(ValueError, match="Q1: a prompt of .*leaves no room to answer"):
        made.check(model)


@pytest.mark.filterwarnings("ignore")
def test_the_harness_finds_the_same(suite, folder, tmp_path):
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    import remask.evaluation.harness  # noqa: F401  registers the model

    task = {
        "task": "remask_arc",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": suite().data}},
        "output_type": "multiple_choice",
        "test_split": "test",
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_target": "{{choices.label.index(answerKey)}}",
        "doc_to_choice": "{{choices.text}}",
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": True}
            for name in ("acc", "acc_norm")
        ],
    }
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "remask_arc.yaml").write_text(yaml.safe_dump(task))
    out = lm_eval.simple_evaluate(
        model="remask",
        model_args={"checkpoint": folder, "mc_num": 8, "cfg": 0.5, "device": "cpu"},
        tasks=["remask_arc"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )
    made = suite(cfg=0.5, bos=False)
    predictions = predict(made, load(folder))
    figures = {s.metric: s.value for s in made.score(predictions)}
    result = out["results"]["remask_arc"]
    assert result["acc,none"] == figures["accuracy"]
    assert result["acc_norm,none"] == figures["accuracy_by_length"]
    theirs = [
        [float(response[0]) for response in sample["filtered_resps"]]
        for sample in sorted(out["samples"]["remask_arc"], key=lambda s: s["doc_id"])
    ]
    ours = predictions["log_likelihoods"].to_pylist()
    np.testing.assert_allclose(np.array(theirs), np.array(ours), atol=1e-4)


def test_settings_are_checked(suite):
    with pytest.raises(ValueError, match="mc_num must be at least 1, got 0"):
        suite(mc_num=0)
    assert dataclasses.replace(suite(), seed=1).identity() != suite().identity()
