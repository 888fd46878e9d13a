"""The model of lm-evaluation-harness: answers as our own suites decode them, and refusals."""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from remask.evaluation.decode.generation import generate
from remask.evaluation.decoder import Decoder
from remask.infra.cli import main
from remask.models import load
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.checkpoints.decoding_file import write_decoding
from remask.pipeline.judges.answers import extract_answer
from tests.models.checkpoints.test_decoding_file import tuned
from tests.text_folders import write_llada, write_text_tokenizer

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_llada(tmp_path_factory.mktemp("models") / "llada", max_length=96)


@pytest.fixture
def model(folder):
    from remask.evaluation.harness import RemaskLM

    return lambda **args: RemaskLM(**({"checkpoint": folder, "device": "cpu"} | args))


def asked(context, **wishes):
    return SimpleNamespace(args=(context, wishes))


def test_answers_are_those_of_the_same_decoder(model, folder):
    lm = model(policy="revision", reveal_count=3, steps=8, batch_size=2)
    wanted = [("one", 12, ()), ("two three", 20, ()), ("four", 12, ("a", "Z"))]
    answers = lm.generate_until(
        [asked(text, max_gen_toks=length, until=list(stops)) for text, length, stops in wanted]
    )
    decoder = Decoder(settings={"reveal_count": 3}, max_steps=8)
    backbone, codec = load(folder, history=trained_history(folder)), lm.codec
    for i, (text, length, stops) in enumerate(wanted):
        (answer,) = generate(backbone, [codec.encode(text)], length, decoder, row_ids=[i])
        assert answers[i] == codec.decode_answer(answer.ids, stops)
    shorter = model(policy="revision", reveal_count=3, steps=8, gen_length=12)
    assert shorter.generate_until([asked("one", max_gen_toks=99)]) == answers[:1]


def test_tuned_settings_are_used_and_have_a_pace_where_there_are_none(model, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    write_decoding(copy, tuned())  # 8 passes: 5 steps, margin -1, reveal_within 0.5
    wanted = [asked("one", max_gen_toks=20)]
    untuned = model(policy="tuned", steps=7)
    paced = model(policy="revision", steps=7, reveal_within=0.5)
    assert untuned.generate_until(wanted) == paced.generate_until(wanted)
    own = model(checkpoint=str(copy), policy="tuned", steps=7)
    settings = {"steps": 5, "margin": -1.0, "reveal_within": 0.5}
    written_out = model(policy="revision", **settings)
    assert own.generate_until(wanted) == written_out.generate_until(wanted)
    assert own.generate_until(wanted) != paced.generate_until(wanted)


def test_steps_default_to_one_per_token(model):
    lm = model(gen_length=12)
    assert lm.decoder.max_steps is None
    assert lm.generate_until([asked("one")]) == model(gen_length=12, steps=12).generate_until(
        [asked("one")]
    )


@pytest.mark.parametrize(
    "response",
    ["6 + 4 = 10\n#### 10", "so #### -3", "#### 1,234", "the total is 7", "no idea", "#### $5"],
)
def test_harness_and_suite_extract_the_same_number(response):
    """GSM8K: the strict pattern of the harness's task finds what ours finds after ####."""
    from lm_eval.filters.extraction import RegexFilter

    strict = RegexFilter(regex_pattern=r"#### (\-?[0-9\.\,]+)", fallback="[invalid]")
    theirs = strict.apply([[response]], [{}])[0][0].replace(",", "")
    if theirs != "[invalid]":
        assert extract_answer(response, "gsm8k") == theirs


def test_mistakes_are_named(model, tmp_path):
    with pytest.raises(ValueError, match="policy revision reveals every MASK at once here"):
        model(policy="revision")
    with pytest.raises(ValueError, match=r"absorbing settings: unknown keys \['speed'\]"):
        model(speed=3)
    with pytest.raises(ValueError, match="dtype must be one of .* got 'int8'"):
        model(dtype="int8")
    with pytest.raises(ValueError, match="batch_size must be a number, got 'auto'"):
        model(batch_size="auto")
    maskless = write_text_tokenizer(tmp_path / "maskless", mask=False)
    with pytest.raises(ValueError, match="maskless has no MASK"):
        model(tokenizer=maskless)
    with pytest.raises(ValueError, match="'x+': a prompt of 90 tokens leaves room for 6 in"):
        model(gen_length=12).generate_until([asked("x" * 90)])
    with pytest.raises(NotImplementedError, match="does not score whole documents"):
        model().loglikelihood_rolling([])


def test_an_empty_context_is_scored_after_the_end_token(model):
    (one,) = model(mc_num=4).loglikelihood([SimpleNamespace(args=("", "four"))], disable_tqdm=True)
    assert one[0] < 0
    assert one[1] is False


def test_a_missing_checkpoint_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", sys.argv)
    arguments = ["--model", "remask", "--tasks", "arc_challenge", "--model_args"]
    with pytest.raises(SystemExit, match="2"):
        main(["harness", *arguments, f"checkpoint={tmp_path}/none"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"remask harness: there is no checkpoint folder at {tmp_path}/none")


@pytest.mark.slow
def test_the_command_is_the_harness_with_our_model(folder, tmp_path):
    task = "task: remask_sums\ndataset_path: json\noutput_type: generate_until\ntest_split: test\n"
    task += "doc_to_text: '{{question}}'\ndoc_to_target: '{{answer}}'\n"
    task += f"dataset_kwargs: {{data_files: {{test: {tmp_path / 'sums.jsonl'}}}}}\n"
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "sums.yaml").write_text(task)
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    done = subprocess.run(
        [sys.executable, "-m", "remask.infra.cli", "harness", "--model", "remask", "--tasks",
         "remask_sums", "--include_path", str(tmp_path / "tasks"), "--model_args",
         f"checkpoint={folder},gen_length=8", "--device", "cpu"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "remask_sums" in done.stdout
