"""SIGKILL to any process of a build, a probe, a rollout or an evaluation, again and again: every
byte is that of an undisturbed run, and every exit status is true.

    REMASK_KILLS=50 REMASK_SEED=3 python -m pytest -m slow tests/end_to_end/test_kill_storm.py -s

What is killed and after which event follows from the seed; the moment within it is the machine's.
Training has a storm of its own in `tests/training`.
"""

import contextlib
import os
import random
import subprocess
import sys
import time

import psutil
import pytest
import torch
import yaml

from remask.models import HistoryConfig, SudokuConfig, SudokuMDM, save
from tests.pipeline.test_build import files
from tests.places import ROOT

KILLS = int(os.environ.get("REMASK_KILLS", "8"))
SEED = int(os.environ.get("REMASK_SEED", "1"))
UNITS = 40
"""Files of a run's unit of work, about."""
VICTIMS = ("driver", "worker", "agent", "raylet", "gcs_server", "all")
COMMANDS = {
    "build": "remask.pipeline.build",
    "probe": "remask.pipeline.probe",
    "rollout": "remask.pipeline.rollout",
    "eval": "remask.evaluation.evaluate",
}
VOLATILE = ("provenance.json", "evaluation.json", "recipe.json")
"""Of these, time and place of a run are a part."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("storm") / "model"
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)
    save(SudokuMDM(config, HistoryConfig(decay=0.5)), folder)
    return str(folder)


def recipe_for(stage, output, checkpoint, workers):
    if stage == "eval":
        return {
            "output": str(output),
            "suites": {
                "boards": {"kind": "sudoku", "side": 4, "boards": 4 * UNITS, "wrong": [1, 4]}
            },
            "checkpoints": {"model": checkpoint},
            "decoders": {"rm": {"max_steps": 12}},
            "samples_per_chunk": 4,
            "run": {"workers": workers},
        }
    if stage == "rollout":
        return {
            "output": str(output),
            "checkpoint": checkpoint,
            "source": {"kind": "sudoku", "side": 4, "train": 20 * UNITS, "held_out": 40},
            "decoders": {"steps": [2, 5], "temperature": [0.0, 0.7]},
            "looks": 2,
            "examples_per_shard": 20,
            "run": {"workers": workers},
        }
    proposal = {"kind": "top_k", "backbone": checkpoint, "k": 2, "mode": "masked"}
    return {
        "output": str(output),
        "source": {"kind": "sudoku", "side": 4, "train": 200 * UNITS, "held_out": 400},
        "trajectories": {"noisy_count": [1, 8]},
        "proposal": proposal if stage == "probe" else {"kind": "wrong_digit"},
        "examples_per_shard": 200,
        "run": {"workers": workers},
    }


def bytes_of(folder):
    """Every file of an output, without those that say when and where it was made."""
    return {name: data for name, data in files(folder).items() if name not in VOLATILE}


def count_files(folder):
    return sum(len(names) for _, _, names in os.walk(folder))


class Storm:
    """One output under fire."""

    def __init__(self, stage, path, output, chance):
        self.chance, self.output, self.kills = chance, output, []
        self.command = [sys.executable, "-m", COMMANDS[stage], str(path)]

    def launch(self, *, kill):
        """The command once, killed if asked for; returns its exit status."""
        before = len(self.kills)
        with self.output.with_name("said").open("w+") as said:
            process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=said, stderr=said, start_new_session=True
            )
            below = []
            try:
                if kill:
                    below = self._kill_when_due(process)
                status = process.wait(timeout=300)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                for child in below:  # a killed driver's Ray ends by itself, but not at once
                    with contextlib.suppress(psutil.NoSuchProcess):
                        child.kill()
            said.seek(0)
            text = said.read()
        assert kill or status == 0, text[-3000:]
        assert "Traceback" not in text, text[-3000:]
        victim = self.kills[-1] if len(self.kills) > before else None
        if victim == "worker":
            assert status == 0, f"a dead worker is made up for: {text[-3000:]}"
        return status

    def _kill_when_due(self, process):
        """Kill a process of the run once it has come some way; returns all it had started."""
        wanted = count_files(self.output) + self.chance.randint(0, UNITS)
        while count_files(self.output) < wanted and process.poll() is None:
            time.sleep(0.01)
        time.sleep(self.chance.random() * 0.2)
        victim = self.chance.choice(VICTIMS)
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(process.pid)
            below = driver.children(recursive=True)
            named = [x for x in below if self._is(victim, x)]
            targets = {"driver": [driver], "all": [driver, *below]}.get(victim, named[:1])
            if targets and process.poll() is None:
                for target in targets:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        target.kill()
                self.kills.append(victim)
            return below
        return []

    @staticmethod
    def _is(victim, process):
        try:
            title = process.cmdline()[0]
        except (psutil.Error, IndexError):
            return False
        if title.startswith("ray::"):
            return victim == ("agent" if title.endswith("Agent") else "worker")
        return victim in title


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stage", COMMANDS)
def test_a_storm_of_kills_changes_no_byte(tmp_path, checkpoint, stage, workers):
    chance = random.Random(f"{SEED} {stage} {workers}")
    paths = {}
    for name in ("calm", "rough"):
        paths[name] = tmp_path / f"{name}.yaml"
        recipe = recipe_for(stage, tmp_path / name, checkpoint, workers)
        paths[name].write_text(yaml.safe_dump(recipe))
    Storm(stage, paths["calm"], tmp_path / "calm", chance).launch(kill=False)
    expected = bytes_of(tmp_path / "calm")
    storm, statuses = Storm(stage, paths["rough"], tmp_path / "rough", chance), []
    while len(storm.kills) < KILLS:
        statuses.append(storm.launch(kill=True))
        if statuses[-1] == 0:  # it says that it is done, so it must be; and it begins anew
            assert bytes_of(tmp_path / "rough") == expected
            (tmp_path / "rough").rename(tmp_path / f"done-{len(statuses)}")
    storm.launch(kill=False)
    assert bytes_of(tmp_path / "rough") == expected
    print(f"{stage}, {workers} workers: {len(storm.kills)} kills {storm.kills}, {statuses}")
