"""Recipes for one's own text: written for the data, accepted by every stage, refused in a line."""

import json
import re

import pytest

import remask
from remask.evaluation.recipe import EvalRecipe
from remask.infra import run
from remask.infra.cli import main
from remask.infra.text_data import guess_templates, read_facts
from remask.infra.text_recipe import new_text_recipe
from remask.infra.text_sizes import Machine, choose_sizes
from remask.models import HistoryConfig, save
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.plain_yaml import read_yaml
from remask.pipeline.runtime.recipes import load_recipe
from remask.training.plan import make_plan
from remask.training.recipe import TrainRecipe
from remask.training.world import World
from tests.sums import (
    PROMPT,
    RESPONSE,
    make_sums,
    write_byte_tokenizer,
    write_sums,
    write_word_tokenizer,
)
from tests.text_folders import write_rows

LAPTOP = Machine(cores=2, gpus=0, memory=16 << 30, is_bf16_fast=False)
SERVER = Machine(cores=64, gpus=8, memory=512 << 30, is_bf16_fast=True)
ALONE = World(rank=0, size=1, local_rank=0, local_size=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return write_byte_tokenizer(tmp_path_factory.mktemp("tokenizers") / "bytes")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sections(path):
    kinds = {"data": BuildRecipe, "base": TrainRecipe, "reviser": TrainRecipe, "scores": EvalRecipe}
    return [load_recipe(kind, f"{path}:{name}", []) for name, kind in kinds.items()]


def test_a_recipe_goes_from_the_data_to_a_report(here, tokenizer, capsys):
    """All stages but training, in whose place are new models of the recipe's shape."""
    write_sums(here / "sums.jsonl")
    path = remask.new_text_recipe(
        "sums.jsonl", tokenizer, prompt=PROMPT, response=RESPONSE, machine=LAPTOP
    )
    assert str(path) == "sums.yaml"
    run.main(["sums.yaml", "--dry-run"])
    assert capsys.readouterr().out.splitlines() == [
        "remask build sums.yaml:data",
        "remask train sums.yaml:base",
        "remask build sums.yaml:mistakes",
        "remask train sums.yaml:reviser",
        "remask eval sums.yaml:scores",
        "remask report runs/sums/eval",
    ]
    shards = remask.build("sums.yaml:data").collect()
    assert (shards["vocab_size"][0], shards["mask_id"][0]) == (258, 256)
    assert shards["longest"].max() == 20  # 16 bytes of prompt, three digits, an end
    assert shards["rows"].sum() == 300
    base, reviser = sections(path)[1:3]
    backbone = make_plan(base, ALONE).make_backbone()
    assert (backbone.vocab_size, backbone.mask_id) == (258, 256)
    assert backbone.max_length >= 20 + 4
    save(backbone, base.output + "/model")
    mistakes = remask.build("sums.yaml:mistakes").collect()
    assert mistakes["proposal"].unique().to_list() == ["top_k"]
    assert mistakes["tokenizer"].unique().to_list() == shards["tokenizer"].unique().to_list()
    assert len(list((here / "runs/sums/cache/examples").iterdir())) == 1  # both builds share it
    assert mistakes["rows"].sum() > 2 * 300
    assert make_plan(reviser, ALONE).horizon >= 6
    backbone.history = HistoryConfig(norm="rms", decay=0.5)
    save(backbone, reviser.output + "/model")
    scores = remask.evaluate("sums.yaml:scores")
    asked = scores.filter(metric="accuracy")["count"].unique().to_list()
    assert asked == [shards.filter(split="held_out")["rows"].sum()]
    assert "sums.jsonl, held-out rows" in (here / remask.report("runs/sums/eval")).read_text()
    facts = json.loads((here / "runs/sums/eval/evaluation.json").read_text())
    assert {x["settings"]["max_steps"] for x in facts["runs"]} == {3, 4, 7, 8}


@pytest.mark.parametrize("machine", [LAPTOP, SERVER], ids=["laptop", "server"])
@pytest.mark.parametrize("count", [4, 40, 4000])
def test_every_size_of_data_gives_a_sound_recipe(here, tokenizer, machine, count):
    path = new_text_recipe(write_sums(here / "sums.jsonl", count), tokenizer, machine=machine)
    data, base, reviser, scores = sections(path)
    assert base.model["size"] == ("tiny" if machine is LAPTOP else "small")
    assert reviser.rounds.rollout["source"] == load_recipe_source(path)
    assert reviser.steps % reviser.rounds.every == 0
    rollout = reviser.round_recipe(0)
    assert rollout.source == data.source
    rows = reviser.rounds.shards * min(rollout.examples_per_shard, count) * rollout.looks
    if count == 4000:
        assert rows * 1.1 >= reviser.rounds.every * reviser.batch_size * reviser.rounds.share
    suite = scores.make_suites()["own"]
    assert 0 < suite.num_samples < count
    for decoder in scores.decoders.values():
        suite.adapt(decoder)  # which refuses one that reveals all at once


def load_recipe_source(path):
    return read_yaml(path.read_text("utf-8"), "recipe")["recipes"]["data"]["source"]


@pytest.mark.parametrize("length", [1, 9, 40, 150, 400, 900])
def test_decoders_fit_answers_of_any_length(here, tokenizer, length):
    rows = [{"prompt": f"{i}:", "response": "a" * length} for i in range(30)]
    path = new_text_recipe(write_rows(here / "long.jsonl", *rows), tokenizer, machine=SERVER)
    _, _, reviser, scores = sections(path)
    suite = scores.make_suites()["own"]
    assert suite.gen_length == length + 1
    for decoder in scores.decoders.values():
        suite.adapt(decoder)
    assert max(reviser.round_recipe(0).decoders.steps) <= 32


def test_rows_far_longer_than_the_others_are_left_out(here, tokenizer):
    rows = [*make_sums(300), {"question": "long", "answer": "9" * 5000}]
    facts = read_facts(write_rows(here / "sums.jsonl", *rows), tokenizer)
    sizes = choose_sizes(facts, LAPTOP)
    assert sizes.max_length == 10 + 4  # "23 + 51 =\n", three digits, an end
    assert sizes.left_out_share == pytest.approx(1 / 301)
    path = new_text_recipe("sums.jsonl", tokenizer, machine=LAPTOP)
    assert "0.3% of the rows are longer and left out" in path.read_text()


def test_what_the_tokenizer_lacks_is_said(here):
    words = write_word_tokenizer(here / "words")
    rows = [*make_sums(20), {"question": "12 ? 3 =", "answer": "x"}]
    path = new_text_recipe(write_rows(here / "sums.jsonl", *rows), words, machine=LAPTOP)
    text = path.read_text("utf-8")
    assert "it gets <|mask|> and <|endoftext|>, which it lacks" in text
    assert re.search(r"it does not know [0-9.]+% of the tokens", text)
    assert "it does not write text back exactly as it was" in text
    assert "judge: exact" in text
    complete = write_word_tokenizer(here / "complete", mask_token="[M]", eos_token="[E]")
    write_sums(here / "sums.jsonl", 20)
    path = new_text_recipe("sums.jsonl", complete, file="own.yaml", machine=LAPTOP)
    assert "it gets" not in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"prompt", "response", "id"}, "{prompt}"),
        ({"question", "answer"}, "{question}\n"),
        ({"input", "output"}, "{input}\n"),
        ({"instruction", "output"}, "{instruction}\n"),
        ({"instruction", "input", "output"}, "{instruction}\n{input}\n"),
        ({"text", "id"}, ""),
    ],
)
def test_templates_are_guessed_from_the_fields(fields, prompt):
    assert guess_templates("x.jsonl", fields)[0] == prompt


def test_strange_names_and_templates_are_quoted(here, tokenizer):
    """Everything that a user gives is text in the recipe, never YAML."""
    rows = [{"a b": f"{i}#", "c": "x: y"} for i in range(30)]
    data = write_rows(here / "it's #1: 50%.jsonl", *rows)
    prompt = '{a b} # é\u2028\x85\N{SNOWMAN}\\ "*x" {{json}}\n- '
    path = new_text_recipe(data, tokenizer, prompt=prompt, response="{c}", machine=LAPTOP)
    assert path.name == "it-s--1--50-.yaml"
    source = sections(path)[0].source
    assert (source.data, source.prompt, source.response) == (data, prompt, "{c}")


def test_the_command_says_what_to_do_next(here, tokenizer, capsys):
    write_sums(here / "sums.jsonl", 30)
    argv = ["recipes", "new", "text", "--data", "sums.jsonl", "--tokenizer", tokenizer]
    main([*argv, "--prompt", r"Q: {question}\nA: ", "--response", "{answer}", "--output", "out/a"])
    assert capsys.readouterr().out == (
        "sums.yaml is written; read it, then run it: remask run sums.yaml\n"
    )
    data, base, *_ = sections("sums.yaml")
    assert (data.source.prompt, data.output, base.output) == (PROMPT, "out/a/data", "out/a/base")
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "sums.yaml exists; choose another file or remove it" in capsys.readouterr().err


LONG = [{"prompt": f"{i:4000}", "response": "b"} for i in range(9)]


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, {}, "there is no file sums.jsonl"),
        (b"", {}, "cannot load sums.jsonl: "),
        (b"\xff\xfe\x00\x01", {}, "cannot load sums.jsonl: "),
        (b'{"a": 1}\n{"a"', {}, "cannot load sums.jsonl: line 2 is not JSON"),
        (
            [{"title": "x", "body": "y"}],
            {},
            r"has the fields \['body', 'title'\], and none of prom",
        ),
        (make_sums(9), {"prompt": "{q}", "response": "x"}, "--response names no field, got 'x'"),
        (make_sums(9), {"prompt": "{q}", "response": "{answer}"}, r"row 1 does not fit a template"),
        (make_sums(9), {"prompt": "{question}"}, "give both --prompt and --response"),
        (make_sums(9), {"output": "a b"}, "the output folder may have letters, digits and"),
        (make_sums(9), {"output": "s3://bucket/a"}, "the output folder may have letters, digits"),
        (make_sums(9), {"output": ""}, "the output folder may have letters, digits and"),
        (make_sums(9), {"data": "tokenizer.txt"}, "tokenizer.txt must end in one of .jsonl, .json"),
        (make_sums(9), {"file": "no/such/a.yaml"}, "there is no folder no/such"),
        (make_sums(9), {"tokenizer": "./none"}, "cannot load tokenizer ./none: there is no such"),
        (make_sums(9), {"tokenizer": "sums.jsonl"}, "it is a file; pass the folder"),
        (LONG, {}, "all rows are too long: the shortest has 4002 tokens, and 512 are the most"),
        ([{"prompt": "a", "response": None}] * 3, {}, "no row of sums.jsonl can be used"),
        ([{"prompt": "a", "response": "b"}] * 3, {}, "too few different prompts to hold one out"),
    ],
)
def test_bad_input_gets_a_line_and_leaves_nothing(here, tokenizer, content, arguments, message):
    if isinstance(content, bytes):
        (here / "sums.jsonl").write_bytes(content)
    elif content is not None:
        write_rows(here / "sums.jsonl", *content)
    (here / "tokenizer.txt").write_text("33 + 65 = 98")
    given = {"data": "sums.jsonl", "tokenizer": tokenizer, "machine": LAPTOP} | arguments
    with pytest.raises(ValueError, match=message) as caught:
        new_text_recipe(**given)
    assert "\n" not in str(caught.value)
    assert not list(here.glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "write", [write_byte_tokenizer, write_word_tokenizer], ids=["bytes", "words"]
)
def test_a_few_steps_of_everything(here, write):
    """The run as a user starts it; a second call has nothing left to train."""
    write_sums(here / "sums.jsonl")
    new_text_recipe("sums.jsonl", write(here / "tokenizer"), machine=LAPTOP)
    few = ["base.steps=4", "reviser.steps=4", "reviser.rounds.every=2", "train.batch_size=16"]
    run.main(["sums.yaml", *few])
    model = here / "runs/sums/reviser/model/model.safetensors"
    made = model.stat().st_mtime_ns
    run.main(["sums.yaml", *few])
    assert model.stat().st_mtime_ns == made
    assert (here / "runs/sums/eval/report.html").is_file()
    assert remask.load("runs/sums/reviser/model").config.d_model == 128
