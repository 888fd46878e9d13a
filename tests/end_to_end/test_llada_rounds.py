"""LLaDA in small, by the shipped recipes: shards, rounds of own decodes, evaluation, report."""

import json
import subprocess
import sys

import polars as pl
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from remask.models import fingerprint, load
from remask.pipeline import open_manifest
from remask.training.rounds import data_folder, model_folder
from tests.places import ROOT
from tests.text_folders import write_llada, write_rows
from tests.training.runs import environment

PROBLEMS = [
    {
        "problem": f"{a} + {b}?", "solution": rf"\boxed{{{a + b}}}", "answer": str(a + b),
        "subject": "Algebra", "type": "Algebra", "level": "Level 1",
    }
    for a in range(4, 8) for b in range(4, 10)
]  # fmt: skip
WEIGHTS = "weights/llada-8b-instruct"
"""Where the shipped recipes look for the published model."""
STAGES = [
    "build pipeline/recipes/llada_math.yaml source.data=train.jsonl source.held_out_share=0.1"
    " source.max_length=256 source.eos_bucket=8 replicas=2 examples_per_shard=12"
    " run.workers=0 run.gpus_per_probe=0",
    "train training/recipes/llada_math_own.yaml --ranks 1 steps=4 rounds.every=2 rounds.shards=2"
    " rounds.rollout.source.data=train.jsonl rounds.rollout.source.held_out_share=0.1"
    " rounds.rollout.source.max_length=256 rounds.rollout.source.eos_bucket=8"
    " rounds.rollout.examples_per_shard=6 'rounds.rollout.decoders.steps=[4, 8]'"
    " 'rounds.rollout.run={workers: 2}' batch_size=8 optimizer.warmup=1 held_out.max_steps=4"
    " log.tensorboard=false",
    "eval evaluation/recipes/text_llada.yaml suites.math500.data=test.jsonl"
    " suites.math500.gen_length=16 suites.math500.block_length=16 suites.math500.steps=8"
    " 'runs=[{suites: [math500], checkpoints: [base, math-own], decoders: [rm]}]' 'tables=[]'"
    " run.workers=0",
    "report runs/llada/eval",
]


@pytest.mark.slow
def test_llada_learns_from_its_own_decodes_by_the_shipped_recipes(tmp_path):
    folder = tmp_path / WEIGHTS
    folder.parent.mkdir()
    write_llada(folder)
    _store_in_bf16(folder / "model.safetensors")
    write_rows(tmp_path / "train.jsonl", *PROBLEMS[4:])
    write_rows(tmp_path / "test.jsonl", *PROBLEMS[:4])
    (tmp_path / "mini.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    command = [sys.executable, "-m", "remask.infra.cli", "run", "mini.yaml"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]

    run = tmp_path / "runs/llada_math/own"
    assert json.loads((run / "outcome.json").read_text())["step"] == 4
    decoded_by = [folder, model_folder(run / "rounds", 1)]
    for number, checkpoint in enumerate(decoded_by):
        manifest = open_manifest(str(data_folder(run / "rounds", number))).collect()
        assert manifest["backbone"].unique().to_list() == [fingerprint(checkpoint)]
        assert 0 < manifest["rows"].sum() <= 2 * 6 * 4
        assert manifest["unchecked"].sum() == 0
        assert load(checkpoint).token_embedding.dtype == torch.bfloat16  # and so are its decodes
    scores = pl.read_parquet(tmp_path / "runs/llada/eval/scores.parquet")
    answered = scores.filter(pl.col("metric") == "forward_passes", pl.col("by").is_null())
    assert sorted(answered["checkpoint"].to_list()) == ["base", "math-own"]
    assert answered["value"].max() <= 8
    assert (tmp_path / "runs/llada/eval/report.html").exists()


def _store_in_bf16(path):
    """As the published weights are."""
    save_file({name: x.bfloat16() for name, x in load_file(path).items()}, path)
