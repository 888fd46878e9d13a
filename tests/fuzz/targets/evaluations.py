"""Predictions that an evaluation goes on from, and the scores that it makes of them."""

import functools
from pathlib import Path
from random import Random

import yaml

from remask.evaluation import evaluate
from remask.evaluation.recipe import EvalRecipe
from remask.pipeline.runtime.recipes import load_recipe
from tests.fuzz.bases import CHECKPOINT, checkpoint, made, reseal
from tests.fuzz.case import Case, Files, Target
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.tables import rewrite

OUTPUT = "eval-of-fuzz"
RECIPE = {
    "output": OUTPUT,
    "suites": {"boards": {"kind": "sudoku", "side": 4, "boards": 4, "wrong": [1, 3]}},
    "checkpoints": {"ours": CHECKPOINT},
    "decoders": {"rm": {"max_steps": 3}},
    "samples_per_chunk": 2,
    "run": {"workers": 0},
}


@functools.cache
def evaluated() -> Files:
    """A complete evaluation, with its recipe and checkpoint."""

    def write(folder: Path) -> None:
        Case(checkpoint()).write(folder)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
        paths = [f"output={folder / OUTPUT}", f"checkpoints.ours={folder / CHECKPOINT}"]
        evaluate.run(load_recipe(EvalRecipe, folder / "recipe.yaml", paths))

    return made(write)


def make(rng: Random) -> Case:
    files = dict(evaluated())
    name = rng.choice([x for x in files if "predictions" in x])
    is_table = name.endswith(".parquet")
    change = rng.choice((rewrite, rewrite, mutate_bytes)) if is_table else mutate_bytes
    files[name], notes = change(files[name], rng)
    if rng.random() < 0.9:
        reseal(files, name)
    return Case(files, (), tuple(notes), (OUTPUT,))


def run(case: Case) -> None:
    evaluate.main(["recipe.yaml"])


TARGETS = (Target("predictions", make, run, share=0.5),)
