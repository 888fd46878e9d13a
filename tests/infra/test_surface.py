"""`import remask` as the Python surface: lazy, and each function does what its command does."""

import os
import pydoc
import re
import signal
import subprocess
import sys
import threading

import polars as pl
import pytest
import torch

import remask
from remask.infra.cli import main
from remask.models import SudokuConfig, SudokuMDM, save
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime.recipes import make_recipe
from remask.pipeline.runtime.storage import StorageError
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder
from remask.training.world import TrainingError
from tests.training.runs import MODEL, log_lines, wait_for

SURFACE = {
    "build", "evaluate", "load", "open_manifest", "open_reviser", "read_rows", "report", "revise",
    "states", "train",
}  # fmt: skip
HEAVY = ("torch", "ray", "deepspeed", "polars", "pyarrow", "numpy", "transformers")
LAZY = f"""
import sys, remask
assert not set({HEAVY}) & set(sys.modules), "import remask"
dir(remask), remask.build, remask.train, remask.evaluate, remask.report
assert not set({HEAVY}) & set(sys.modules), "the functions"
remask.load
assert "torch" in sys.modules
assert not {{"ray", "deepspeed", "transformers"}} & set(sys.modules), "a model alone"
"""
SMALL = {"source__train": 64, "source__held_out": 16, "run__workers": 0}


def test_nothing_large_is_imported_before_it_is_needed():
    done = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tools_see_the_surface():
    assert set(remask.__all__) == SURFACE | set(remask.ROOMS)
    assert set(remask.__all__) <= set(dir(remask))
    for name in SURFACE:
        assert getattr(remask, name).__doc__, f"help(remask.{name}) is empty"
    with pytest.raises(AttributeError, match="module 'remask' has no attribute 'biuld'"):
        remask.biuld  # noqa: B018
    assert remask.models.load is remask.load
    assert remask.pipeline.states is remask.states


def test_help_describes_the_functions():
    text = pydoc.plain(pydoc.render_doc(remask))
    for name in SURFACE:
        assert re.search(rf"^    {name}\(", text, re.MULTILINE)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "data"
    return folder, remask.build("sudoku4", output=folder, **SMALL)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run") / "model"
    save(SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)), folder)
    return folder


def test_build_returns_the_manifest_and_writes_what_the_command_writes(shards, tmp_path, capsys):
    folder, manifest = shards
    assert isinstance(manifest, pl.LazyFrame)
    assert manifest.select(pl.col("rows").sum()).collect().item() == 80
    options = [x.replace("__", ".") + f"={value}" for x, value in SMALL.items()]
    main(["build", "sudoku4", f"output={tmp_path}/data", *options])
    capsys.readouterr()
    sums = [x.select("shard", "sha256").collect() for x in (manifest, remask.open_manifest(
        str(tmp_path / "data")))]  # fmt: skip
    assert sums[0].equals(sums[1])
    path = manifest.filter(split="train").collect()["path"][0]
    row = next(iter(remask.read_rows(f"{folder}/{path}")))
    assert remask.states(row).shape[1] == 16


@pytest.mark.parametrize("as_kind", [dict, BuildRecipe])
def test_a_mapping_and_a_dataclass_are_recipes_too(as_kind, shards, tmp_path):
    folder, manifest = shards
    values = {
        "output": str(folder),
        "source": {"kind": "sudoku", "side": 4, "train": 8192, "held_out": 1024},
        "trajectories": {
            "horizon": 6,
            "noisy_count": [0, 8],
            "rules": {"wrong": 0.7, "mask": 0.3},
            "doubt_share": 0.1,
        },
        "proposal": {"kind": "wrong_digit"},
        "examples_per_shard": 2048,
    }  # fmt: skip
    recipe = values if as_kind is dict else make_recipe(BuildRecipe, values, {})
    # The same recipe as the packaged one, or its output would be refused.
    assert remask.build(recipe, **SMALL).collect().equals(manifest.collect())


def test_a_bad_request_is_an_error_not_an_exit(shards, tmp_path):
    folder, _ = shards
    with pytest.raises(ValueError, match="source: train must be int, got 'all'"):
        remask.build("sudoku4", source__train="all")
    with pytest.raises(ValueError, match="was made by another recipe"):
        remask.build("sudoku4", output=folder, seed=1, **SMALL)
    with pytest.raises(ValueError, match="ranks must be at least 1, got 0"):
        remask.train("sudoku4", ranks=0)
    with pytest.raises(ValueError, match="cannot read recipe nowhere: No such file"):
        remask.evaluate("nowhere")
    with pytest.raises((ValueError, StorageError), match="nowhere"):
        remask.report(tmp_path / "nowhere")


def test_evaluate_returns_the_scores_and_report_the_page(checkpoint, tmp_path, capsys):
    scores = remask.evaluate(
        "sudoku4",
        output=tmp_path / "scores",
        checkpoints__rm=checkpoint,
        suites__boards__boards=8,
        decoders__revision__max_steps=2,
        run__workers=0,
    )
    assert isinstance(scores, pl.DataFrame)
    overall = scores.filter(pl.col("by").is_null(), metric="exact")
    assert overall["count"].to_list() == [8]
    assert scores.equals(pl.read_parquet(tmp_path / "scores" / "scores.parquet"))
    assert capsys.readouterr().out == ""  # a table is the command's to print
    page = remask.report(tmp_path / "scores", tmp_path / "page.html")
    assert page == str(tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    assert remask.report([str(tmp_path / "scores")]) == f"{tmp_path}/scores/report.html"


def recipe_for(shards, output, **changes):
    return {
        "shards": shards[0],
        "output": output,
        "model": MODEL,
        "steps": 2,
        "batch_size": 8,
        "held_out": {"every": 0},
        "log": {"tensorboard": False},
        **changes,
    }


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")


def test_train_returns_the_model_that_the_launcher_trained(shards, tmp_path, one_thread):
    before = [signal.getsignal(x) for x in (signal.SIGINT, signal.SIGTERM)]
    model = remask.train(recipe_for(shards, tmp_path / "run"), optimizer__lr=0.01, ranks=1)
    assert isinstance(model, SudokuMDM)
    assert RunFolder(tmp_path / "run").outcome().is_finished
    assert [signal.getsignal(x) for x in (signal.SIGINT, signal.SIGTERM)] == before
    revision = remask.revise(model, torch.zeros(1, 16, dtype=torch.long), max_steps=2)
    assert revision.tokens.shape == (1, 16)
    with pytest.raises(ValueError, match="made by another recipe .*optimizer.lr 0.01 → 0.5"):
        remask.train(recipe_for(shards, tmp_path / "run"), optimizer__lr=0.5)


def test_a_training_run_that_fails_says_what_its_rank_said(shards, tmp_path, one_thread, capfd):
    with pytest.raises(TrainingError, match="there is no data set at .*nowhere; build one with"):
        remask.train(recipe_for(shards, tmp_path / "run"), shards=tmp_path / "nowhere")
    assert "remask train: there is no data set at" in capfd.readouterr().err


def test_training_that_is_stopped_is_no_success(shards, tmp_path, one_thread):
    """From a thread, in which no signal can be handled."""
    folder, errors = RunFolder(tmp_path / "run"), []
    recipe = make_recipe(
        TrainRecipe, recipe_for(shards, tmp_path / "run", steps=100000, log={"every": 1}), {}
    )

    def run():
        try:
            remask.train(recipe)
        except TrainingError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: log_lines(folder.path) or not thread.is_alive())
    folder.stop.touch()
    thread.join(120)
    assert len(errors) == 1
    assert "stopped and saved at step" in errors[0]
    assert errors[0].endswith("; train again to continue")


def test_progress_is_a_line_where_there_is_no_terminal(tmp_path):
    """As for the commands: JSON lines on stderr, and nothing on stdout."""
    call = f"remask.build('sudoku4', output={str(tmp_path / 'data')!r}, **{SMALL})"
    done = subprocess.run(
        [sys.executable, "-c", f"import remask; {call}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert '{"event": "done", "stage": "build"' in done.stderr
