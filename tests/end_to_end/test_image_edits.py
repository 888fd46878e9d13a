"""Image edits from nothing to a report, by the command that users give."""

import subprocess
import sys

import polars as pl
import pytest

from tests.places import ROOT

SMALL = [
    "vq.learning.steps=30", "vq.num_pairs=64", "vq.num_held_out=8",
    "build.source.pairs.train=64", "build.source.pairs.held_out=8",
    "train.steps=3", "train.batch_size=16",
    "eval.suites.edits.samples=6", "eval.decoders.fill.max_steps=4", "eval.decoders.rm.max_steps=3",
]  # fmt: skip


@pytest.mark.slow
def test_shapes_go_from_nothing_to_a_report(tmp_path):
    for room in ("pipeline", "training", "evaluation", "infra"):
        (tmp_path / room).symlink_to(ROOT / room)
    command = [sys.executable, "-m", "remask.infra.cli", "run", "infra/recipes/shapes.yaml", *SMALL]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "8 of 8" in done.stderr
    folder = tmp_path / "runs" / "shapes" / "eval"
    scores = pl.read_parquet(folder / "scores.parquet")
    runs = scores.filter(metric="coverage").select("checkpoint", "decoder").rows()
    assert sorted(runs) == [("base", "fill"), ("rm", "rm"), ("sft", "fill")]
    page = (folder / "report.html").read_text()
    assert 'class="edits"' in page
