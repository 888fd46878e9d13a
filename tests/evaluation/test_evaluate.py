"""The evaluation stage: real runs on a small model, resumed, repeated, refused."""

import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
import torch
import yaml

from remask.evaluation import evaluate
from remask.evaluation.evaluate import run
from remask.evaluation.recipe import EvalRecipe
from remask.evaluation.runs import make_runs
from remask.models import HistoryConfig, SudokuConfig, SudokuMDM, save
from remask.models.config import from_mapping
from remask.pipeline.runtime.storage import Storage, StorageError
from tests.ray_head import ray_head


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    for seed in range(2):
        torch.manual_seed(seed)
        config = SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)
        save(SudokuMDM(config, HistoryConfig(decay=0.5)), folder / f"seed{seed}")
    return folder


@pytest.fixture
def settings(tmp_path, checkpoints):
    return {
        "output": str(tmp_path / "eval"),
        "suites": {"boards": {"kind": "sudoku", "side": 4, "boards": 10, "wrong": [1, 4]}},
        "checkpoints": {
            "one": str(checkpoints / "seed0"),
            "both": [str(checkpoints / f"seed{i}") for i in range(2)],
        },
        "decoders": {
            "rm": {"max_steps": 4},
            "oracle": {"policy": "absorbing", "start": "oracle", "max_steps": 4},
        },
        "samples_per_chunk": 4,
        "run": {"workers": 0},
    }


def recipe(settings, **changes):
    return from_mapping(EvalRecipe, settings | changes, "recipe")


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_every_suite_meets_every_checkpoint_and_decoder(settings, tmp_path):
    summary = run(recipe(settings))
    # `one` is the first of `both`, so its predictions are shared: 2 models, 2 decoders, 3 chunks.
    assert (summary.units, summary.new_units) == (12, 12)
    scores = pl.read_parquet(tmp_path / "eval" / "scores.parquet")
    runs = (
        scores.select("checkpoint", "member", "decoder")
        .unique()
        .sort("checkpoint", "member", "decoder")
        .rows()
    )
    assert runs == [
        ("both", 0, "oracle"), ("both", 0, "rm"), ("both", 1, "oracle"), ("both", 1, "rm"),
        ("one", 0, "oracle"), ("one", 0, "rm"),
    ]  # fmt: skip
    exact = scores.filter(pl.col("metric") == "exact", pl.col("by").is_null())
    assert set(exact["count"]) == {10}
    assert ((exact["low"] <= exact["value"]) & (exact["value"] <= exact["high"])).all()
    facts = json.loads((tmp_path / "eval" / "evaluation.json").read_text())
    assert len(facts["runs"]) == 6
    assert facts["runs"][0]["samples"] == 10
    assert facts["runs"][0]["settings"]["max_steps"] == 4
    assert facts["provenance"]["versions"]["torch"]
    shown = json.loads((tmp_path / "eval" / "showcase.json").read_text())
    assert {(s["checkpoint"], s["decoder"]) for s in shown} == {
        (c, d) for c in ("one", "both") for d in ("rm", "oracle")
    }


def test_a_selection_runs_only_what_it_names(settings):
    runs = [{"checkpoints": ["one"], "decoders": ["rm"]}, {"checkpoints": ["both"]}]
    selected = make_runs(recipe(settings, runs=runs))
    assert [(r.checkpoint, r.member, r.decoder_name) for r in selected] == [
        ("one", 0, "rm"), ("both", 0, "rm"), ("both", 1, "rm"),
        ("both", 0, "oracle"), ("both", 1, "oracle"),
    ]  # fmt: skip


def test_only_what_is_missing_is_decoded_and_all_is_the_same(settings, tmp_path):
    folder = tmp_path / "eval"
    run(recipe(settings))
    whole = files(folder)
    assert run(recipe(settings)).new_units == 0
    lost = sorted((folder / "predictions").rglob("*.parquet"))[::3]
    for path in lost:
        path.unlink()
    (folder / "scores.parquet").unlink()
    assert run(recipe(settings)).new_units == len(lost)
    assert files(folder) == whole


def test_another_decoder_costs_only_its_own_runs(settings):
    run(recipe(settings))
    more = settings["decoders"] | {"p2": {"policy": "p2", "max_steps": 3}}
    assert run(recipe(settings, decoders=more)).new_units == 6
    batched = {**more, "rm": {"max_steps": 4, "batch_size": 3}}  # changes nothing that comes out
    assert run(recipe(settings, decoders=batched)).new_units == 0


def test_ray_workers_write_the_same_bytes(settings, tmp_path):
    run(recipe(settings))
    alone = files(tmp_path / "eval" / "predictions")
    elsewhere = str(tmp_path / "ray")
    assert run(recipe(settings, output=elsewhere, run={"workers": 2})).new_units == 12
    assert files(tmp_path / "ray" / "predictions") == alone


def test_a_killed_run_continues(settings, tmp_path):
    path = tmp_path / "recipe.yaml"
    many = {"boards": {"kind": "sudoku", "side": 4, "boards": 200, "wrong": [1, 4]}}
    settings |= {"suites": many, "runs": [{"checkpoints": ["both"], "decoders": ["rm"]}]}
    path.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "remask.evaluation.evaluate", str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    folder = tmp_path / "eval" / "predictions"
    while process.poll() is None and len(list(folder.rglob("*.parquet"))) < 3:
        time.sleep(0.02)
    assert process.poll() is None, "it was over before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "eval" / "scores.parquet").exists()
    written = len(list(folder.rglob("*.parquet")))
    summary = run(recipe(settings))
    assert summary.new_units == summary.units - written
    resumed = files(folder)
    run(recipe(settings, output=str(tmp_path / "undisturbed")))
    assert resumed == files(tmp_path / "undisturbed" / "predictions")


def test_predictions_go_to_any_storage(settings):
    run(recipe(settings, output="memory://eval-test"))
    assert Storage("memory://eval-test").exists("scores.parquet")


def test_damaged_predictions_are_named(settings, tmp_path):
    run(recipe(settings))
    victim = next((tmp_path / "eval" / "predictions").rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:100])
    with pytest.raises(StorageError, match=f"{victim.name} was altered: .*remove both and run"):
        run(recipe(settings))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suites": {}}, "suites is empty"),
        ({"suites": {"x": {"kind": "chess"}}}, r"suites: x: kind must be one of .*'sudoku'.*chess"),
        ({"suites": {"x": {"kind": "sudoku", "boards": 0}}}, "boards must be at least 1, got 0"),
        ({"suites": {"x": {"kind": "sudoku"}}}, "the suite has 9×9 boards, the model is for 4×4"),
        ({"suites": {"x": {"kind": "sudoku", "size": 4}}}, r"x: unknown keys \['size'\]"),
        ({"checkpoints": {"x": "nowhere"}}, "there is no checkpoint folder at nowhere"),
        ({"decoders": {"x": {"policy": "magic"}}}, "policy must be one of"),
        ({"decoders": {"x": {"settings": {"speed": 2}}}}, r"revision settings: unknown keys"),
        ({"decoders": {"x": {"max_steps": 0}}}, "max_steps must be at least 1, got 0"),
        ({"runs": [{"decoders": ["none"]}]}, r"\['none'\] is not among the recipe's decoders"),
        ({"samples_per_chunk": 0}, "samples_per_chunk must be at least 1"),
    ],
)
def test_bad_recipes_are_refused_before_anything_runs(settings, changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(recipe(settings, **changes))
    assert not (tmp_path / "eval").exists()


def test_the_command_says_what_is_wrong_in_a_line(settings, tmp_path, capsys):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(settings))
    with pytest.raises(SystemExit) as exit_:
        evaluate.main([str(path), "decoders.rm.max_steps=0"])
    assert exit_.value.code == 2
    assert "max_steps must be at least 1, got 0" in capsys.readouterr().err
    evaluate.main([str(path), "--dry-run"])
    assert "# eval: 18 units" in capsys.readouterr().out


@pytest.mark.slow
def test_a_submitted_job_writes_the_same_predictions(settings, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(settings | {"run": {}}))
    with ray_head() as head:
        done = head.submit("python", "-m", "remask.evaluation.evaluate", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    run(recipe(settings, output=str(tmp_path / "here")))
    submitted = files(tmp_path / "eval" / "predictions")
    assert submitted == files(tmp_path / "here" / "predictions")


def test_a_submitted_job_needs_an_output_that_stays(settings, monkeypatch):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(ValueError, match="output eval is relative, and a submitted job's folder"):
        run(recipe(settings, output="eval"))
