"""Text suites through the evaluation stage, with a small LLaDA in its published layout."""

import json

import polars as pl
import pyarrow.parquet as pq
import pytest

from remask.evaluation.decode.generation import generate
from remask.evaluation.evaluate import read_predictions, run
from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.runs import make_runs
from remask.models import load
from remask.models.checkpoints.checkpoint import trained_history
from remask.models.config import from_mapping
from remask.pipeline.runtime.storage import Storage
from tests.evaluation.suites.test_arc import ROWS as ARC
from tests.evaluation.suites.test_text_suites import MATH
from tests.text_folders import write_llada, write_rows


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    model = write_llada(folder / "llada")
    math, arc = write_rows(folder / "math.jsonl", *MATH), write_rows(folder / "arc.jsonl", *ARC)
    return {
        "output": str(folder / "eval"),
        "suites": {
            "math": {
                "kind": "math", "data": math, "tokenizer": model, "gen_length": 16, "steps": 8,
                "block_length": 8, "ends": "late",
            },
            "arc": {"kind": "arc", "preset": "paper", "data": arc, "tokenizer": model},
        },
        "checkpoints": {"base": model},
        "decoders": {
            "absorbing": {"policy": "absorbing"},
            "remdm": {"policy": "remdm"},
            "p2": {"policy": "p2"},
            "rm": {"settings": {"reveal_within": 0.5}},
        },
        "samples_per_chunk": 2,
        "run": {"workers": 0},
    }  # fmt: skip


def recipe(settings, **changes):
    return from_mapping(EvalRecipe, settings | changes, "recipe")


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.parquet")}


def test_all_decoders_at_equal_passes_and_ray_workers_write_the_same(settings, tmp_path):
    summary = run(recipe(settings, output=str(tmp_path / "here")))
    # 4 problems by 4 decoders, and 3 questions once, whatever the decoder; 2 a chunk.
    assert summary.new_units == 4 * 2 + 2
    scores = pl.read_parquet(tmp_path / "here" / "scores.parquet").filter(pl.col("by").is_null())
    passes = scores.filter(pl.col("metric") == "forward_passes", pl.col("suite") == "math")
    assert passes["value"].max() <= 8
    assert dict(passes.select("decoder", "value").iter_rows())["absorbing"] == 8
    arc = scores.filter(pl.col("suite") == "arc", pl.col("metric") == "accuracy")["value"]
    assert len(arc) == 4
    assert arc.n_unique() == 1
    facts = json.loads((tmp_path / "here" / "evaluation.json").read_text())
    rm = next(r for r in facts["runs"] if (r["suite"], r["decoder"]) == ("math", "rm"))
    assert rm["settings"]["max_steps"] == 7
    assert rm["settings"]["settings"]["block_length"] == 8
    first = pq.read_table(next((tmp_path / "here" / "predictions").rglob("*.parquet")))
    assert "prompt_sha256" in first.column_names
    on_ray = run(recipe(settings, output=str(tmp_path / "ray"), run={"workers": 2}))
    assert on_ray.new_units == summary.new_units
    assert files(tmp_path / "ray") == files(tmp_path / "here")


def test_a_published_model_gets_no_history(settings, tmp_path):
    decoders = {"absorbing": {"policy": "absorbing"}}
    wanted = recipe(settings, decoders=decoders, output=str(tmp_path), runs=[{"suites": ["math"]}])
    run(wanted)
    (own,) = make_runs(wanted)
    responses = read_predictions(Storage(str(tmp_path)), own)["response"].to_pylist()
    path = settings["checkpoints"]["base"]
    prompts = [own.suite.prompt_ids(question) for question in own.suite.questions]
    for history, is_same in ((trained_history(path), True), (None, False)):
        answers = generate(load(path, history=history), prompts, 16, own.decoder)
        texts = [own.suite.codec.decode_answer(answer.ids, ()) for answer in answers]
        assert (texts == responses) == is_same
    facts = json.loads((tmp_path / "evaluation.json").read_text())["runs"][0]
    assert facts["history"]["variant"] == "none"


def test_a_decoder_that_reveals_all_is_refused_by_name(settings, tmp_path):
    decoders = {"printed": {"policy": "revision"}}
    with pytest.raises(ValueError, match="decoders: printed: policy revision reveals every MASK"):
        make_runs(recipe(settings, decoders=decoders))


def test_a_prompt_without_room_is_refused_before_anything_runs(settings, tmp_path):
    long = settings["suites"] | {"math": settings["suites"]["math"] | {"gen_length": 500}}
    with pytest.raises(ValueError, match="3: a prompt of .* in a model of 512 positions"):
        run(recipe(settings, suites=long, output=str(tmp_path / "none")))
    assert not (tmp_path / "none").exists()
