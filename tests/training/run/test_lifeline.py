"""Kill any process of a launch: the command says so, no rank is left, and it can be given again."""

import subprocess
import sys

import psutil
import pytest

from remask.training.run.folder import RunFolder
from tests.training.runs import (
    chain,
    environment,
    is_gone,
    log_lines,
    losses,
    run_ranks,
    start_command,
    start_deepspeed,
    wait_for,
    write_recipe,
)

SETTINGS = {"steps": 200, "save": {"every": 20}, "held_out": {"rows": 16, "every": 100}}
SLOW = pytest.mark.slow
COMMAND, RUNNER, LAUNCHER, RANK = range(4)
"""Levels of the chain."""


@pytest.fixture(scope="module")
def undisturbed(boards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run_ranks(write_recipe(folder, "run", boards, **SETTINGS))
    return folder / "run"


def same_run(output, expected):
    model = "model/model.safetensors"
    is_same_model = (output / model).read_bytes() == (expected / model).read_bytes()
    return is_same_model and losses(output) == losses(expected)


def kill(process, level, output):
    """Kill one process of the chain once a checkpoint is there; returns its ranks."""
    wait_for(lambda: RunFolder(output).newest() is not None, process)
    levels = chain(process)
    ranks = [x for x in levels[-1] if "RANK" in x.environ()]
    assert ranks
    levels[level][-1].kill()
    return ranks


@pytest.mark.parametrize(
    "level",
    [
        pytest.param(COMMAND, id="remask train", marks=SLOW),
        pytest.param(RUNNER, id="runner", marks=SLOW),
        pytest.param(LAUNCHER, id="launcher"),
        pytest.param(RANK, id="rank", marks=SLOW),
    ],
)
def test_after_any_kill_nothing_is_left_and_the_same_command_completes(
    boards, tmp_path, undisturbed, level
):
    path = write_recipe(tmp_path, "run", boards, **SETTINGS)
    process = start_command(path)
    ranks = kill(process, level, tmp_path / "run")
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    if level == COMMAND:
        wait_for(lambda: all(map(is_gone, ranks)), timeout_s=20)
    else:
        assert all(map(is_gone, ranks))
        assert "Traceback" not in err
    assert RunFolder(tmp_path / "run").outcome() is None
    with RunFolder(tmp_path / "run").locked():
        pass

    process = start_command(path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    assert "train: 200 steps done" in out
    assert RunFolder(tmp_path / "run").outcome().is_finished
    assert same_run(tmp_path / "run", undisturbed)


@SLOW
@pytest.mark.parametrize("level", [RUNNER, LAUNCHER], ids=["runner", "launcher"])
def test_ranks_of_deepspeed_as_typed_end_with_it(boards, tmp_path, level):
    path = write_recipe(tmp_path, "run", boards, **SETTINGS | {"steps": 100000})
    process = start_deepspeed(path, ranks=2)
    ranks = kill(process, level - RUNNER, tmp_path / "run")
    assert len(ranks) == 2
    wait_for(lambda: all(map(is_gone, ranks)), timeout_s=40)
    process.communicate(timeout=60)


def test_a_rank_whose_launcher_ended_while_it_was_starting_ends_at_once(boards, tmp_path):
    path = write_recipe(tmp_path, "run", boards)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for variables in ({"REMASK_TRAIN_PID": str(ended.pid)}, {"CROSS_SIZE": "1"}):
        done = subprocess.run(
            [sys.executable, "-m", "remask.training.train", path],
            env=environment(RANK="0", WORLD_SIZE="1", **variables),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "the launcher has ended; process" in done.stderr
        assert not (tmp_path / "run").exists()


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
child.wait()
"""
CHILD = """
import subprocess, sys
from remask.training.run.lifeline import end_with_parent
end_with_parent()
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(below.pid, flush=True)
below.wait()
"""


def test_a_process_and_its_group_end_with_its_parent():
    """As the conversion of states does, whose workers are processes too."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True
    )
    below = psutil.Process(int(parent.stdout.readline()))
    child = below.parent()
    parent.kill()
    parent.communicate(timeout=60)  # at the end of output that all three share
    wait_for(lambda: is_gone(child) and is_gone(below), timeout_s=60)


@SLOW
def test_a_request_to_stop_before_the_ranks_have_begun_is_followed(boards, tmp_path):
    path = write_recipe(tmp_path, "run", boards, steps=100000)
    process = start_command(path)
    wait_for(lambda: len(chain(process)) >= 2, process)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not log_lines(tmp_path / "run")
