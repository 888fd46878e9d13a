"""Going on from checkpoints that are damaged, or that someone else made."""

import json
import os
import shutil

import pytest
import torch
import yaml

from remask.training.run.checkpoint import STATE, State, files_of, seal, write_state
from tests.training.runs import losses, run_ranks, run_together, write_recipe

ADAMW = {"kind": "adamw", "lr": 3e-3}
WEIGHTS = "model/model.safetensors"


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def engine_file(checkpoint, kind="model_states"):
    (path,) = (checkpoint / "deepspeed").glob(f"*{kind}.pt")
    return path


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def plant(checkpoint, kind="model_states"):
    """Code in a checkpoint, by someone who knows how checkpoints are sealed."""
    path = engine_file(checkpoint, kind)
    values = torch.load(path, weights_only=False)
    values["extra"] = Evil(checkpoint.parents[2] / f"{checkpoint.parents[1].name}-was-here")
    torch.save(values, path)
    state = json.loads((checkpoint / STATE).read_text())["state"]
    state = State(state["step"], state["world_size"])
    write_state(checkpoint, state, seal(checkpoint, files_of(checkpoint)))


def retype(checkpoint, **changes):
    values = json.loads((checkpoint / STATE).read_text())
    values["state"].update(changes)
    (checkpoint / STATE).write_text(json.dumps(values))


DAMAGES = {
    "engine": lambda x: flip(engine_file(x)),
    "model": lambda x: flip(x / "model" / "model.safetensors"),
    "state": lambda x: flip(x / STATE),
    "type": lambda x: retype(x, step="6", recent_losses=["a"]),
    "deep": lambda x: (x / STATE).write_text("[" * 100_000),
    "missing": lambda x: engine_file(x).unlink(),
}


def copied(folder, source, name):
    """A run back at its last checkpoint, and its recipe."""
    shutil.copytree(folder / source, folder / name)
    shutil.rmtree(folder / name / "model")
    recipe = yaml.safe_load((folder / f"{source}.yaml").read_text())
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe | {"output": str(folder / name)}))
    return str(path), folder / name / "checkpoints" / "step-00000006"


@pytest.fixture(scope="module")
def resumed(boards, tmp_path_factory):
    """Copies of a run, each spoilt in its own way, and what resuming from them says."""
    folder = tmp_path_factory.mktemp("resumed")
    run_together([write_recipe(folder, "base", boards)])
    zero = write_recipe(folder, "pair", boards, optimizer=ADAMW, engine={"zero_stage": 1})
    run_ranks(zero, 2)
    paths = []
    for name, damage in DAMAGES.items():
        path, last = copied(folder, "base", name)
        damage(last)
        paths.append(path)
    path, last = copied(folder, "base", "none-left")
    flip(engine_file(last))
    flip(engine_file(last.with_name("step-00000003")))
    paths.append(path)
    path, last = copied(folder, "base", "planted")
    plant(last)
    paths.append(path)
    path, last = copied(folder, "pair", "planted-pair")
    plant(last, "rank_1_mp_rank_00_optim_states")
    paths.append(path)
    return folder, run_together(paths)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_older_one_taken(resumed, name):
    folder, done = resumed
    (line,) = [x for x in done.stderr.splitlines() if f"{folder / name}/checkpoints" in x]
    assert line.startswith("remask train: ")
    assert line.endswith(": resuming from step 3 instead")
    assert losses(folder / name) == losses(folder / "base")
    assert (folder / name / WEIGHTS).read_bytes() == (folder / "base" / WEIGHTS).read_bytes()


def test_without_any_good_checkpoint_it_says_so_and_does_not_start_over(resumed):
    folder, done = resumed
    (line,) = [x for x in done.stderr.splitlines() if f"{folder / 'none-left'}/" in x]
    assert "no undamaged checkpoint is left" in line
    assert line.count("does not match its checksum") == 2
    assert not (folder / "none-left" / "model").exists()


@pytest.mark.parametrize("name", ["planted", "planted-pair"])
def test_no_code_of_a_checkpoint_is_run(resumed, name):
    """By one rank, and when the states of two are put together for one."""
    folder, done = resumed
    (line,) = [x for x in done.stderr.splitlines() if f"{folder / name}/" in x]
    assert "names posix.mkdir, which could execute code" in line
    assert not (folder / f"{name}-was-here").exists()
    assert not (folder / name / "model").exists()


def test_each_failure_is_an_exit_status(resumed):
    _, done = resumed
    assert done.stderr.count("exit 1") == 3
    assert "Traceback" not in done.stderr
