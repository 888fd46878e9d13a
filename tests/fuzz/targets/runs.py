"""The folder of a training run that is started again: states, recipe, log."""

import functools
import hashlib
import json
from pathlib import Path
from random import Random

import yaml

from remask.pipeline.runtime.recipes import load_recipe
from remask.training.recipe import TrainRecipe
from remask.training.run.checkpoint import STATE, State, files_of, seal
from remask.training.run.folder import RunFolder, RunOutcome
from remask.training.run.logs import keep_lines
from remask.training.trainer import prepared
from remask.training.world import World
from tests.fuzz.bases import DATA, MODEL, built, made
from tests.fuzz.case import Case, Files, Target
from tests.fuzz.mutate import mutate_bytes, mutate_json

RUN = "run-of-fuzz"
RECIPE = {"shards": DATA, "output": RUN, "model": MODEL, "steps": 9, "batch_size": 4}
SCORES = {"exact": 0.5, "loss": 1.25}
ALONE = World(rank=0, size=1, local_rank=0, local_size=1)


@functools.cache
def begun() -> Files:
    """A run with two checkpoints, its recipe and its log."""

    def write(folder: Path) -> None:
        run = RunFolder(folder / RUN)
        for step in (3, 6):
            run.begin(step)
            aside = run.aside(step)
            (aside / "deepspeed").mkdir()
            (aside / "deepspeed" / "state").write_bytes(bytes(range(64)))
            state = State(step, 1, 0, (1.5, 1.25), (0.5,) * 8, SCORES)
            run.commit(state, seal(aside, files_of(aside)), keep=2)
        run.record(RunOutcome(6, 9, SCORES, str(RUN)))
        lines = [json.dumps({"event": "train", "step": i, "loss": 1.0 / (i + 1)}) for i in range(6)]
        run.log.write_text("".join(f"{line}\n" for line in lines))

    files = made(write) | {x: y for x, y in built().items() if x.startswith(DATA)}
    return files | {"recipe.yaml": yaml.safe_dump(RECIPE).encode(), **_claimed(files)}


def _claimed(files: Files) -> Files:
    """recipe.json and provenance.json, as a run leaves them."""

    def write(folder: Path) -> None:
        Case(files).write(folder)
        paths = {"shards": str(folder / DATA), "output": str(folder / RUN)}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE | paths))
        with prepared(load_recipe(TrainRecipe, folder / "recipe.yaml", []), ALONE):
            pass

    files = made(write)
    return {
        name: files[name]
        for name in files
        if name.startswith(RUN) and "/" not in name[len(RUN) + 1 :]
    }


def make(rng: Random) -> Case:
    files = dict(begun())
    name = rng.choice([x for x in files if x.startswith(RUN)])
    if name.endswith(".json"):
        files[name], notes = mutate_json(files[name], rng)
    elif name.endswith(".jsonl") and rng.random() < 0.7:
        lines = files[name].splitlines()
        at = rng.randrange(len(lines))
        lines[at], notes = mutate_json(lines[at], rng)
        files[name] = b"\n".join(lines)
    else:
        files[name], notes = mutate_bytes(files[name], rng)
    if name.endswith(STATE) and rng.random() < 0.9:
        files[name] = _resealed(files[name])
    return Case(files, (), (name, *notes), (RUN,))


def _resealed(data: bytes) -> bytes:
    """A checkpoint's state with its own checksum made right again, if it has one."""
    try:
        values = json.loads(data)
        told = {name: values[name] for name in ("state", "files")}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        return json.dumps(told | {"sha256": digest}).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        return data


def run(case: Case) -> None:
    """All that a rank does with the folder before it loads weights, and when it next saves."""
    recipe = load_recipe(TrainRecipe, "recipe.yaml", [])
    with prepared(recipe, ALONE) as (_, folder):
        folder.outcome()
        newest = folder.newest()
        if newest:
            newest.faults()
        keep_lines(folder, newest.state.step if newest else 0)
        folder.begin(7)
        folder.commit(State(7, 1, scores=SCORES), {}, keep=1)


TARGETS = (Target("run-folder", make, run, share=2.0),)
