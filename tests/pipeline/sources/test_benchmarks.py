"""Text benchmarks as training examples: what is asked, what is answered, how it ends."""

import json

import numpy as np
import pytest

from remask.models.text.prompts import load_tokenizer
from remask.pipeline import TrajectoryConfig, source
from remask.pipeline.benchmarks.mbpp import mbpp_part, read_mbpp
from remask.pipeline.recipe import BuildRecipe, RunConfig
from remask.pipeline.sources.text import TextSource
from tests.places import SHARED
from tests.text_folders import EOS, EOT, HEAD, MASK, write_rows, write_text_tokenizer

MATH = [
    {"problem": "What is $1+1$?", "solution": "It is $\\boxed{2}$.", "level": "Level 1",
     "type": "Algebra"},
    {"problem": "Roll a die.", "solution": "$\\boxed{\\frac16}$", "level": "Level 2",
     "type": "Counting & Probability"},
]  # fmt: skip
GSM8K = {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"}
ARC = {
    "id": "a", "question": "What is wet?", "answerKey": "B",
    "choices": {"label": ["A", "B"], "text": ["sand", "water"]},
}  # fmt: skip
LLADA_TEMPLATE = (
    "{% for m in messages %}{{ bos_token if loop.first }}<|head|>{{ m['role'] }}\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}<|head|>assistant\n\n"
)
"""It heads another turn of the assistant's whether asked to or not."""


def task(number: int) -> dict:
    return {"task_id": number, "text": f"Write f{number}.", "code": f"def f{number}():\r\n  pass",
            "test_list": [f"assert f{number}() is None"], "test_setup_code": ""}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_text_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def make(tokenizer, tmp_path):
    def make(benchmark, *rows, **settings):
        data = write_rows(tmp_path / f"{benchmark}.jsonl", *rows)
        settings = {"tokenizer": tokenizer, "held_out_share": 0.0} | settings
        return TextSource(data=data, benchmark=benchmark, **settings)

    return make


def texts(source, count=1000):
    """Prompts and responses of the first records, special tokens written out."""
    examples = source.examples("train", 0, count, np.random.default_rng(0))
    inner = load_tokenizer(source.tokenizer).inner
    rows = zip(examples.target, examples.prompt_lengths, examples.lengths, strict=True)
    return [(inner.decode(x[:p]), inner.decode(x[p:n])) for x, p, n in rows]


def test_every_benchmark_has_its_prompt_and_response(make):
    start, end = "<|startoftext|>", "<|endoftext|>"
    assert texts(make("math", *MATH))[0] == (
        f"{start}Problem:\nWhat is $1+1$?\n\nSolution:", f" It is $\\boxed{{2}}$.{end}"
    )  # fmt: skip
    assert texts(make("gsm8k", GSM8K)) == [
        (f"{start}Question: Two and two?\nAnswer:", f" 2+2=4\n#### 4{end}")
    ]
    assert texts(make("arc", ARC)) == [
        (f"{start}Question: What is wet?\nA. sand\nB. water\nAnswer:", f" B{end}")
    ]
    trained = next(n for n in range(99) if mbpp_part(n, 0) == "train")
    prompt, response = texts(make("mbpp", task(trained)))[0]
    assert prompt.endswith(f"tests:\nassert f{trained}() is None\nProgram:\n")
    assert response == f" [BEGIN]\ndef f{trained}():\n  pass\n[DONE]{end}"
    assert texts(make("math", *MATH, prompt="Q: {problem}", response="{answer}"))[0] == (
        f"{start}Q: What is $1+1$?", f"2{end}"
    )  # fmt: skip


def test_math_is_taken_by_subject(make):
    rows = texts(make("math", *MATH, subjects=("Counting & Probability",)))
    assert [prompt for prompt, _ in rows] == ["<|startoftext|>Problem:\nRoll a die.\n\nSolution:"]
    with pytest.raises(ValueError, match=r"no subjects \['Botany'\]; it has \['Algebra', 'Count"):
        make("math", *MATH, subjects=("Botany",)).num_records()
    with pytest.raises(ValueError, match="subjects are MATH's: set benchmark: math, got arc"):
        make("arc", ARC, subjects=("Algebra",))


def test_nothing_of_mbpp_is_trained_on_that_its_suite_tests(make):
    rows = [task(number) for number in range(200)]
    for seed in (0, 1):
        trained = make("mbpp", *rows, split_seed=seed)
        tested = read_mbpp(trained.data, "test", seed=seed)
        assert trained.num_records()["train"] == 200 - len(tested)
        prompts = "".join(prompt for prompt, _ in texts(trained))
        assert not any(f"Write f{t.task_id}." in prompts for t in tested)
    seeds = [make("mbpp", *rows, split_seed=seed).data_hash() for seed in (0, 1)]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("template", [None, LLADA_TEMPLATE])
def test_a_chat_response_ends_its_turn(make, tmp_path, template):
    folder = write_text_tokenizer(tmp_path / "chat")
    if template:
        (tmp_path / "chat" / "chat_template.jinja").write_text(template)
    source = make("arc", ARC, tokenizer=folder, chat=True)
    examples = source.examples("train", 0, 1, np.random.default_rng(0))
    prompt = examples.target[0, : examples.prompt_lengths[0]].tolist()
    assert prompt.count(HEAD) == 2  # the user's, and the assistant's once
    assert prompt == load_tokenizer(folder).encode_prompt(
        "What is wet?\nA. sand\nB. water\n\nAnswer with the letter of the right choice alone.",
        chat=True,
    )
    assert examples.target[0][examples.editable[0]].tolist() == [ord("B"), EOT, EOS]


def test_end_tokens_fill_a_response_and_are_part_of_it(make):
    plain = make("math", *MATH).examples("train", 0, 2, np.random.default_rng(0))
    filled = make("math", *MATH, eos_bucket=64).examples("train", 0, 2, np.random.default_rng(0))
    assert filled.lengths.tolist() == [-(-n // 64) * 64 for n in plain.lengths]
    for i, (before, after) in enumerate(zip(plain.lengths, filled.lengths, strict=True)):
        assert (filled.target[i, before - 1 : after] == EOS).all()
        assert filled.editable[i, before:after].all()
        assert filled.editable[i].sum() == after - plain.prompt_lengths[i]
    limit = int(plain.lengths.max()) + 3
    capped = make("math", *MATH, eos_bucket=64, max_length=limit)
    lengths = capped.examples("train", 0, 2, np.random.default_rng(0)).lengths
    assert lengths.max() == limit
    with pytest.raises(ValueError, match="eos_bucket 64 needs append_eos: true"):
        make("math", *MATH, eos_bucket=64, append_eos=False)


def test_special_tokens_without_a_role_are_never_proposed(make):
    vocabulary = make("math", *MATH).vocabulary()
    assert vocabulary.mask_id == MASK
    assert vocabulary.allowed.tolist() == list(range(256))


def test_mistakes_are_named(make, tmp_path, tokenizer):
    with pytest.raises(ValueError, match=r"math.jsonl: row 2 has no field 'problem'; it has"):
        make("math", MATH[0], {"solution": "x", "level": 1, "type": "Algebra"}).num_records()
    with pytest.raises(ValueError, match="arc.jsonl holds no rows"):
        make("arc").num_records()
    tested = next(n for n in range(99) if mbpp_part(n, 0) == "test")
    with pytest.raises(ValueError, match="mbpp.jsonl: none of its 1 tasks is in part 'train'"):
        make("mbpp", task(tested)).num_records()
    for benchmark in ("math", None):
        far = TextSource(data="no/such", benchmark=benchmark, tokenizer=tokenizer)
        with pytest.raises(
            ValueError, match="data 'no/such' cannot be loaded from the hub: .*local"
        ):
            far.num_records()
    with pytest.raises(ValueError, match="has no mask token <gone>"):
        make("math", *MATH, mask_token="<gone>").vocabulary()
    plain = write_text_tokenizer(tmp_path / "plain", chat=False)
    with pytest.raises(ValueError, match="has no chat template; set chat: false"):
        texts(make("math", *MATH, tokenizer=plain, chat=True))


def test_a_source_that_gives_nothing_is_an_error_and_leaves_nothing(make, tmp_path):
    recipe = BuildRecipe(
        output=str(tmp_path / "out"),
        source=make("math", *MATH, max_length=20),
        trajectories=TrajectoryConfig(horizon=4, noisy_rate=(0.2, 0.5)),
        run=RunConfig(workers=0),
    )
    for _ in range(2):
        with pytest.raises(ValueError, match="no example: all 2 records were left out"):
            source.run(recipe)
    assert not list(tmp_path.glob("out/**/*.parquet"))


@pytest.mark.skipif(not SHARED.exists(), reason=f"{SHARED} is not there")
def test_the_published_data_is_read(tokenizer):
    files = {"math": "math_hendrycks/train", "mbpp": "mbpp/mbpp", "arc": "arc_challenge/train",
             "gsm8k": "gsm8k/train"}  # fmt: skip
    counts = {"math": 7500, "mbpp": 281, "arc": 1119, "gsm8k": 7473}
    for benchmark, count in counts.items():
        text_source = TextSource(
            data=str(SHARED / f"{files[benchmark]}.jsonl"),
            benchmark=benchmark,
            tokenizer=tokenizer,
            held_out_share=0.0,
            max_length=4096,
        )
        assert text_source.num_records() == {"train": count}
        assert len(text_source.examples("train", 0, 100, np.random.default_rng(0)).example_ids) > 90
    assert "<<" not in json.dumps(texts(text_source, 5))
