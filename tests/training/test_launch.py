"""The commands as people type them: DeepSpeed's launcher, two ranks, signals, bad requests."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from remask.models import SudokuConfig, SudokuMDM, save
from remask.training import launch, train
from remask.training.order import Order
from remask.training.recipe import TrainRecipe
from remask.training.run.folder import RunFolder
from remask.training.shard_set import ShardSet
from remask.training.train import main as train_command
from tests.places import ROOT
from tests.training.data import write_data_set
from tests.training.runs import (
    LLADA,
    environment,
    finish,
    log_lines,
    losses,
    run_ranks,
    start_command,
    start_ranks,
    wait_for,
    write_recipe,
)


def ranks_below(process):
    return sorted(launch.ranks_of(process.pid), key=lambda x: x.environ()["RANK"])


def test_a_killed_rank_ends_the_launch_and_the_next_one_goes_on(boards, tmp_path):
    """`remask train --ranks 2`: SIGKILL to the second rank, then the same command once more."""
    settings = {"steps": 60, "save": {"every": 10}, "held_out": {"rows": 16, "every": 30}}
    undisturbed = write_recipe(tmp_path, "undisturbed", boards, **settings)
    run_ranks(undisturbed, 2)
    path = write_recipe(tmp_path, "killed", boards, **settings)
    process = start_command(path, "--ranks", "2")
    wait_for(lambda: max(losses(tmp_path / "killed"), default=0) >= 25, process)
    first, second = ranks_below(process)
    second.kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert not first.is_running() or first.status() == psutil.STATUS_ZOMBIE
    assert 20 <= RunFolder(tmp_path / "killed").newest().state.step < 60

    process = start_command(path, "--ranks", "2")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    assert "train: 60 steps done" in out
    assert losses(tmp_path / "killed") == losses(tmp_path / "undisturbed")
    model = "model/model.safetensors"
    expected = (tmp_path / "undisturbed" / model).read_bytes()
    assert (tmp_path / "killed" / model).read_bytes() == expected


def test_the_launcher_is_quiet_and_the_end_says_what_was_made(boards, tmp_path):
    path = write_recipe(tmp_path, "quiet", boards, steps=2, held_out={"every": 0})
    ((status, out, err),) = finish([start_command(path)])
    assert status == 0, err[-3000:]
    folder = RunFolder(tmp_path / "quiet")
    assert re.fullmatch(rf"train: 2 steps done in \d[\w. ]* s: {folder.model}\n", out)
    assert err.splitlines()[-1].startswith(f"next: `remask revise --checkpoint {folder.model}` or")
    assert "[INFO]" not in err
    assert "[WARNING]" not in err
    ((status, out, _),) = finish([start_command(path, "--verbose")])
    assert status == 0
    assert "Unable to find hostfile" in out


@pytest.mark.slow
def test_sigterm_to_the_command_saves_and_ends_it_cleanly(boards, tmp_path):
    path = write_recipe(tmp_path, "asked", boards, steps=100000, save={"every": 50000})
    process = start_command(path)
    wait_for(lambda: len(log_lines(tmp_path / "asked")) >= 10, process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    step = RunFolder(tmp_path / "asked").newest().state.step
    assert f"stopped and saved at step {step} of 100000" in out
    assert step >= 10


def test_ctrl_c_saves_and_ends_it_cleanly(boards, tmp_path):
    """As a terminal sends it: to every process of the group."""
    path = write_recipe(tmp_path, "asked", boards, steps=100000, save={"every": 50000})
    command = [sys.executable, "-m", "remask.infra.cli", "train", path]
    process = subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(log_lines(tmp_path / "asked")) >= 10, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    assert "Traceback" not in err
    assert "stopped and saved at step" in out


@pytest.mark.slow
def test_two_nodes_train_as_one(boards, tmp_path):
    """A hostfile of two hosts, both this machine: a launcher on each, as `--no_ssh` has it."""
    run_ranks(write_recipe(tmp_path, "alone", boards))
    path = write_recipe(tmp_path, "nodes", boards)
    (tmp_path / "hosts").write_text("localhost slots=1\n127.0.0.1 slots=1\n")
    deepspeed = [sys.executable, str(Path(sys.executable).with_name("deepspeed"))]
    where = ["--hostfile", str(tmp_path / "hosts"), "--no_ssh", "--master_addr", "127.0.0.1"]
    where += ["--master_port", launch.free_port(), "--module", "remask.training.train", path]
    nodes = [
        subprocess.Popen(
            [*deepspeed, "--node_rank", str(node), *where],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(2)
    ]
    outcomes = finish(nodes)
    assert [x[0] for x in outcomes] == [0, 0], outcomes[0][2][-3000:]
    assert RunFolder(tmp_path / "nodes").newest().state.world_size == 2
    assert losses(tmp_path / "nodes") == pytest.approx(losses(tmp_path / "alone"), rel=1e-3)


def test_a_stop_file_saves_and_ends_it_too(boards, tmp_path):
    path = write_recipe(tmp_path, "asked", boards, steps=100000, save={"every": 50000})
    (process,) = start_ranks(path)
    wait_for(lambda: len(log_lines(tmp_path / "asked")) >= 10, process)
    RunFolder(tmp_path / "asked").stop.touch()
    ((status, out, err),) = finish([process])
    assert status == 0, err
    assert "stopped and saved at step" in out


def test_an_error_that_one_rank_meets_is_said_once(tmp_path):
    """A shard that only the second rank reads at first is damaged."""
    shards = ShardSet(write_data_set(tmp_path / "data", [[4] * 400] * 32), "train")
    order = Order(shards.sizes, 16, 0, 65536)
    ((bad, _), *_) = order.pieces(7, order.block(7, 0))
    damaged = tmp_path / "data" / shards.table["path"][bad]
    damaged.write_bytes(damaged.read_bytes()[:-9] + bytes(9))
    path = write_recipe(tmp_path, "run", tmp_path / "data", model=LLADA)
    first, second = finish(start_ranks(path, 2))
    assert (first[0], second[0]) == (1, 1)
    (line,) = [x for x in second[2].splitlines() if x.startswith("remask train")]
    assert line.startswith("remask train: rank 1: ")
    assert f"{damaged.name} does not match its checksum" in line
    (line,) = [x for x in first[2].splitlines() if x.startswith("remask train")]
    assert "rank 0: another rank has ended" in line
    assert "Traceback" not in first[2] + second[2]


def refused(capsys, path, *overrides):
    with pytest.raises(SystemExit) as end:
        train_command([path, *overrides])
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return end.value.code, line


def test_a_request_that_does_not_fit_is_refused_in_one_line(boards, tmp_path, capsys):
    path = write_recipe(tmp_path, "bad", boards)
    save(SudokuMDM(SudokuConfig(side=9, width=32)), tmp_path / "other")
    (tmp_path / "file").write_text("")
    small = SudokuMDM(SudokuConfig(side=4, width=32, heads=2))
    save(small, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"nothing")
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter.json").write_text("{}")
    cases = {
        ("optimizer.speed=3",): "unknown keys ['speed']",
        ("steps=0",): "steps must be at least 1",
        ("epochs=2",): "give either steps or epochs",
        ("model.kind=transformer",): "kind must be one of ['dream', 'llada', 'lumina', 'masked_lm'",
        ("model.wide=3",): "unknown keys ['wide']",
        ("model.side=9",): "has vocab_size 5, the model 10",
        ("model=null", f"start={tmp_path}/other"): "has vocab_size 5, the model 10",
        ("model=null", f"start={tmp_path}/none"): "there is no checkpoint folder at",
        (f"start={tmp_path}/other",): "give either model, for a new backbone, or start",
        ("batch_size=15", "engine.micro_batch_size=4"): "multiple of ranks × micro_batch_size (1",
        ("engine.precision=bf16",): "bf16 needs zero_stage 1 or more",
        ("engine.offload=all", "engine.zero_stage=2"): "offload all needs zero_stage 3",
        (f"output={tmp_path}/file",): "cannot write to output",
        (f"output={tmp_path}/file/below",): "cannot write to output",
        ("output=s3://bucket/run",): "output must be a folder on a file system",
        ("model=null", f"start={tmp_path}/damaged"): "is damaged or not safetensors",
        ("model=null", f"start={tmp_path}/adapter"): "is an adapter; merge it into its base first",
        ("engine.deepspeed.train_batch_size=4",): "['train_batch_size'] follow from the recipe",
        ("engine.deepspeed.zero_optimization.stage=2",): "['zero_optimization.stage'] follow",
        ("lora.rank=2",): "lora needs a checkpoint to start from",
        ("log.wandb=mine",): "wandb is not installed",
    }  # fmt: skip
    for overrides, message in cases.items():
        status, line = refused(capsys, path, *overrides)
        assert status == 2
        assert message in line, line
    assert not (tmp_path / "bad").exists() or not list((tmp_path / "bad").glob("recipe*"))
    status, line = refused(capsys, path, f"shards={tmp_path}/none")
    assert status == 1
    assert "there is no data set at" in line


def test_more_ranks_than_rows_are_refused(tmp_path, capsys, monkeypatch):
    data = write_data_set(tmp_path / "few", [[16, 16, 16]])
    path = write_recipe(tmp_path, "few", data)
    monkeypatch.setenv("WORLD_SIZE", "4")
    status, line = refused(capsys, path)
    assert status == 2
    assert "has 3 rows for 4 ranks; use fewer ranks" in line


def test_rows_longer_than_the_model_takes_are_refused(tmp_path, capsys):
    data = write_data_set(tmp_path / "data", [[5, 40, 7]])
    path = write_recipe(tmp_path, "long", data, model=LLADA)
    status, line = refused(capsys, path)
    assert status == 2
    assert "has rows of 40 tokens, the model takes 32" in line


def test_another_live_run_in_the_folder_is_left_alone(boards, tmp_path, capsys):
    path = write_recipe(tmp_path, "busy", boards)
    with RunFolder(tmp_path / "busy").locked():
        status, line = refused(capsys, path)
    assert status == 2
    assert f"another run (process {os.getpid()} on" in line
    assert "is training in" in line


def test_another_recipe_over_a_run_is_refused(boards, tmp_path, capsys):
    run_ranks(write_recipe(tmp_path, "first", boards, steps=2))
    changed = write_recipe(tmp_path, "second", boards, steps=2, output=str(tmp_path / "first"))
    status, line = refused(capsys, changed, "optimizer.lr=0.5")
    assert status == 2
    assert "was made by another recipe (different: optimizer.lr 0.01 → 0.5)" in line


def test_a_dry_run_prints_the_plan_and_writes_nothing(boards, tmp_path, capsys):
    path = write_recipe(tmp_path, "dry", boards, steps=None, epochs=2)
    launch.main([path, "--dry-run", "batch_size=32"])
    out = capsys.readouterr().out
    assert "batch_size: 32" in out
    assert "# train: 15 steps, 240 rows, 1 ranks" in out
    assert not (tmp_path / "dry").exists()


@pytest.mark.parametrize(
    ("count", "visible", "ranks", "free"),
    [
        (4, None, 2, {launch.VISIBLE: "2,3"}),
        (2, None, 2, {}),  # rollouts share the ranks' GPUs, or have a cluster of their own
        (0, None, 1, {}),
        (2, "1,5", 2, {launch.VISIBLE: "5"}),
        (4, None, 0, {launch.VISIBLE: "0,1,2,3"}),
    ],
)
def test_rollouts_get_the_gpus_without_a_rank(monkeypatch, count, visible, ranks, free):
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv(launch.VISIBLE, raising=False)
    if visible:
        monkeypatch.setenv(launch.VISIBLE, visible)
    assert launch.free_gpus(ranks) == free


def test_every_recipe_shipped_is_read():
    from remask.pipeline.runtime.recipes import load_recipe
    from remask.training.vq import VQRecipe

    paths = sorted((ROOT / "training" / "recipes").glob("*.yaml"))
    assert paths
    for path in paths:
        kind = VQRecipe if path.stem.endswith("_vq") else TrainRecipe
        assert isinstance(load_recipe(kind, path, []), kind)


@pytest.mark.parametrize("main", [launch.main, train.main], ids=["launcher", "rank"])
@pytest.mark.parametrize("option", ["--gpu-memory", "--length", "--gpu-tflops", "--utilisation"])
def test_what_only_a_dry_run_heeds_is_refused_without_one(boards, tmp_path, capsys, option, main):
    path = write_recipe(tmp_path, "wet", boards, steps=1)
    with pytest.raises(SystemExit, match="2"):
        main([path, option, "80"])
    assert f"{option} is for --dry-run; add that, or leave {option} out" in capsys.readouterr().err
    assert not (tmp_path / "wet").exists()
