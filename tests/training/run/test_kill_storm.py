"""SIGKILL to any process of a launch, again and again: the run ends as if nothing had happened.

    REMASK_KILLS=50 REMASK_SEED=3 python -m pytest -m slow tests/training/run/test_kill_storm.py -s

What is killed and after which event follows from the seed; the moment within it is the machine's.
"""

import contextlib
import os
import random
import time

import psutil
import pytest
import torch

from remask.models import create, save
from remask.training.rounds import data_folder
from remask.training.run.folder import RunFolder
from tests.training.runs import (
    MODEL,
    chain,
    finish,
    is_gone,
    losses,
    run_ranks,
    start_command,
    wait_for,
    write_recipe,
)
from tests.training.test_rounds import ROUNDS
from tests.training.test_trainer import DIVIDED

KILLS = int(os.environ.get("REMASK_KILLS", "8"))
SEED = int(os.environ.get("REMASK_SEED", "1"))
MAX_STEPS = 60
"""Between two kills."""
LEVELS = ("remask train", "runner", "launcher", "rank")
EVENTS = (
    *["step"] * 4,  # so many more are logged
    *["save"] * 3,  # a checkpoint is being written
    "launch",  # DeepSpeed's launcher is there, its ranks perhaps
    "rank",  # the ranks are starting
)
ROLLOUTS, DECODES = "rollouts", "decodes"
"""In a run with rounds: another victim, and another event, that the data of a round is being
made."""


class Storm:
    """One run under fire."""

    def __init__(self, path, output, ranks, chance, *, has_rounds=False):
        self.path, self.ranks, self.chance = path, ranks, chance
        self.victims = (*LEVELS, "all", *[ROLLOUTS] * 3 * has_rounds)
        self.events = (*EVENTS, *[DECODES] * 4 * has_rounds)
        self.output, self.folder = output, RunFolder(output)
        self.seen = set()
        """All processes of all launches, to see that none is left."""
        self.kills = []

    def launch(self, *, kill):
        """The command once, killed if asked for; returns its exit status."""
        said = self.output.with_name("said")
        with said.open("w") as file:  # not a pipe, which ranks that are ending would keep open
            process = start_command(self.path, "--ranks", str(self.ranks), output=file)
        try:
            if kill:
                self._wait(process)
                self._kill(process)
            status = process.wait(timeout=240)
        finally:
            process.kill()
        if status == 0:
            assert self.folder.outcome().is_finished
            assert self.folder.model.is_dir()
        assert kill or status == 0, said.read_text()[-3000:]
        return status

    def _wait(self, process):
        event = self.chance.choice(self.events)
        newest = self.folder.newest()
        step = (newest.state.step if newest else 0) + self.chance.randint(1, MAX_STEPS)
        partial = self.output / "checkpoints"
        conditions = {
            "step": lambda: max(losses(self.output), default=0) >= step,
            "save": lambda: (
                max(losses(self.output), default=0) >= step // 2 and any(partial.glob(".*"))
            ),
            "launch": lambda: len(chain(process)) >= LEVELS.index("launcher") + 1,
            "rank": lambda: len(chain(process)) > LEVELS.index("rank"),
            DECODES: lambda: any(
                not (data / "manifest.parquet").exists()
                for data in self.output.glob("rounds/*/data")
            ),
        }
        wait_for(lambda: conditions[event]() or process.poll() is not None, timeout_s=240)
        time.sleep(self.chance.random() * 0.3)

    def _kill(self, process):
        if process.poll() is not None:  # it was done before
            return
        levels = chain(process)
        self.seen |= {x for level in levels for x in level}
        chosen = self.chance.choice(self.victims)
        rollouts = [x for x in levels[1] if is_rollouts(x)] if levels[1:] else []
        if chosen in LEVELS:
            chosen = LEVELS[min(LEVELS.index(chosen), len(levels) - 1)]
            level = [x for x in levels[LEVELS.index(chosen)] if x not in rollouts]
            victims = [self.chance.choice(level)] if level else []
        else:
            victims = rollouts if chosen == ROLLOUTS else [x for level in levels for x in level]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        if victims:
            self.kills.append(chosen)


def is_rollouts(process):
    try:
        return "remask.training.round_rollouts" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_storm_of_kills_changes_nothing(boards, tmp_path, ranks, stage):
    settings = {
        "steps": MAX_STEPS * (KILLS + 1),
        "save": {"every": 10, "keep": 1},
        "held_out": {"rows": 16, "every": 50},
        "optimizer": {"kind": "adamw", "lr": 3e-3},
        "engine": DIVIDED if stage == 3 else {},
    }
    run_ranks(write_recipe(tmp_path, "undisturbed", boards, **settings), ranks)
    path = write_recipe(tmp_path, "killed", boards, **settings)
    chance = random.Random(f"{SEED} {ranks} {stage}")
    storm = Storm(path, tmp_path / "killed", ranks, chance)
    check_storm(storm, tmp_path / "undisturbed", f"{ranks} ranks, ZeRO {stage}")


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "lag"), [(1, 0), (2, 1)])
def test_a_storm_of_kills_changes_nothing_in_rounds(boards, tmp_path, ranks, lag):
    torch.manual_seed(3)
    save(create(MODEL), tmp_path / "start")
    settings = {
        "model": None,
        "start": str(tmp_path / "start"),
        "steps": MAX_STEPS * (KILLS + 1),
        "save": {"every": 10, "keep": 1},
        "held_out": {"rows": 16, "every": 50},
        "rounds": ROUNDS | {"every": 20, "lag": lag},
    }
    calm = write_recipe(tmp_path, "undisturbed", boards, **settings)
    ((status, _, err),) = finish([start_command(calm, "--ranks", str(ranks))])
    assert status == 0, err[-3000:]
    path = write_recipe(tmp_path, "killed", boards, **settings)
    chance = random.Random(f"{SEED} {ranks} rounds {lag}")
    storm = Storm(path, tmp_path / "killed", ranks, chance, has_rounds=True)
    check_storm(storm, tmp_path / "undisturbed", f"{ranks} ranks, rounds with lag {lag}")
    for number in range(settings["steps"] // 20):
        manifests = [
            data_folder(tmp_path / name / "rounds", number) / "manifest.parquet"
            for name in ("killed", "undisturbed")
        ]
        assert manifests[0].read_bytes() == manifests[1].read_bytes()


def check_storm(storm, undisturbed, what):
    """Kill a run until it has had enough, and compare it with an undisturbed one."""
    killed, statuses = storm.output, []
    while len(storm.kills) < KILLS and 0 not in statuses:
        statuses.append(storm.launch(kill=True))
    statuses.append(storm.launch(kill=False))
    assert statuses[-1] == 0
    wait_for(lambda: all(map(is_gone, storm.seen)), timeout_s=60)
    assert len(storm.kills) == KILLS
    assert losses(killed) == losses(undisturbed)
    for name in ("model.safetensors", "config.json"):
        expected = (undisturbed / "model" / name).read_bytes()
        assert (killed / "model" / name).read_bytes() == expected
    assert not list((killed / "checkpoints").glob(".*"))
    assert not list(killed.glob(".*"))
    print(f"{what}: {len(storm.kills)} kills {storm.kills}, {statuses}")
