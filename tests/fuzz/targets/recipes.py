"""Recipes and overrides, as every stage reads them: `--dry-run` loads, checks, plans and prints."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import yaml

from remask.evaluation import evaluate
from remask.infra import run as infra_run
from remask.pipeline import build, probe, rollout
from remask.training import launch, vq
from tests.fuzz.bases import BUILD, CHECKPOINT, DATA, TOP_K, built, checkpoint
from tests.fuzz.case import Case, Files, Target
from tests.fuzz.mutate import (
    YAML_PARTS,
    few,
    keys_and_texts,
    mutate_bytes,
    mutate_text,
    mutate_value,
    near,
    text,
    to_yaml,
    value,
)
from tests.fuzz.verdict import ROOT

RECIPE = "recipe.yaml"
EQUALS = (*("=",) * 12, "", "==", " =")


def shipped(room: str, pattern: str = "*.yaml") -> list[str]:
    """The recipes of a package."""
    return [path.read_text() for path in sorted((ROOT / room / "recipes").glob(pattern))]


@dataclass(frozen=True)
class Kind:
    """A command that reads recipes."""

    main: Callable[[list[str]], object]
    recipes: list[str]
    small: dict[str, Any] | None = None
    """Another recipe, whose data and checkpoint are there."""
    files: Callable[[], Files] = dict
    sections: Callable[[], dict[str, Any]] = dict
    """What overrides reach; the recipe itself, where there is nothing else."""

    @functools.cached_property
    def bases(self) -> list[str]:
        own = [yaml.safe_dump(self.small, sort_keys=False)] if self.small else []
        return [*self.recipes, *own * max(1, len(self.recipes) // 2)]


def make_recipe(kind: Kind, rng: Random) -> Case:
    base = rng.choice(kind.bases)
    values = yaml.safe_load(base)
    known = names(values)
    match rng.choice(("value", "value", "value", "text", "bytes")):
        case "value":
            values, notes = mutate_value(values, rng, is_yaml=True)
            known += names(values)
            data = to_yaml(values)
        case "text":
            changed, notes = mutate_text(base, rng, YAML_PARTS)
            data = changed.encode("utf-8", "surrogatepass")
        case _:
            data, notes = mutate_bytes(base.encode(), rng)
    return Case({**kind.files(), RECIPE: data}, (), tuple(notes), known + _said(data))


def _said(data: bytes | str) -> tuple[str, ...]:
    """Keys and texts of what YAML makes of it, if it makes anything."""
    try:
        return names(yaml.safe_load(data))
    except Exception:  # PyYAML has many, and the reader is tested, not this
        return ()


def make_overrides(kind: Kind, rng: Random) -> Case:
    base = rng.choice(kind.bases)
    values = yaml.safe_load(base)
    sections = kind.sections() or values
    overrides = [_override(sections, rng) for _ in range(few(rng))]
    known = [*names(values), *(x[:40] for x in overrides)]
    for override in overrides:
        key, _, said = override.partition("=")
        known += [key, said.strip("='\" "), *_said(said)]
    files = {**kind.files(), RECIPE: base.encode()}
    return Case(files, tuple(overrides), tuple(overrides), tuple(known))


def _override(values: dict, rng: Random) -> str:
    """`section.key=value` of a key that is there, or of none."""
    keys, section = [], values
    while isinstance(section, dict) and section:
        keys.append(str(rng.choice(list(section))))
        section = section.get(keys[-1])
        if rng.random() < 0.3:
            break
    if rng.random() < 0.2:
        keys.insert(rng.randrange(len(keys) + 1), text(rng))
    new = near(section, rng) if rng.random() < 0.5 else value(rng, is_yaml=True)
    if rng.random() < 0.3:
        said = rng.choice((*YAML_PARTS, text(rng)))
    else:
        said = yaml.safe_dump(new, default_flow_style=True, width=10**6).removesuffix("\n...\n")
    joined = f"{'.'.join(keys)}{rng.choice(EQUALS)}{said.strip()}"
    return joined.replace("\0", "").encode(errors="ignore").decode()  # no argument can hold either


def names(values: object) -> tuple[str, ...]:
    """What a refusal may mention: the file, a stage of a run, or any key or value."""
    return (RECIPE, "stage ", *keys_and_texts(values))


def run(kind: Kind, case: Case) -> None:
    kind.main([RECIPE, *case.arguments, "--dry-run"])


@functools.cache
def stage_recipes() -> Files:
    """What the stages of a run name, under the paths that they name it by."""
    rooms = ("pipeline", "training", "evaluation")
    paths = [path for room in rooms for path in (ROOT / room / "recipes").glob("*.yaml")]
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}


def verbs() -> dict[str, Any]:
    """A recipe for each verb that a stage of a run may have."""
    return {"build": TOP_K, "rollout": ROLLOUT, "train": TRAIN, "eval": EVAL}


ROLLOUT = {
    "output": "out",
    "checkpoint": CHECKPOINT,
    "source": BUILD["source"],
    "decoders": {"steps": [2, 3], "margin": [0.0, -1.0]},
    "targets": "given",
    "looks": 2,
    "span": [1, 2],
    "precision": "mixed",
    "run": {"workers": 0},
}
CHECKED = {
    "output": "out",
    "checkpoint": CHECKPOINT,
    "source": {"kind": "countdown", "train": 20, "held_out": 4, "numbers": [3, 4]},
    "targets": "nearest_right",
    "looks": 3,
    "max_segments": 4,
}
TRAIN = {"shards": DATA, "output": "out", "start": CHECKPOINT, "steps": 4, "batch_size": 4}
ROUNDS = {
    **TRAIN,
    "rounds": {
        "share": 0.5,
        "every": 2,
        "shards": 1,
        "lag": 1,
        "rollout": {
            "source": {**BUILD["source"], "held_out": 0},
            "examples_per_shard": 5,
            "decoders": {"steps": [2, 3], "patience": 1},
            "looks": 2,
            "precision": "mixed",
            "run": {"workers": 0},
        },
    },
}
EVAL = {
    "output": "out",
    "suites": {"boards": {"kind": "sudoku", "side": 4, "boards": 4, "wrong": [1, 3]}},
    "checkpoints": {"ours": CHECKPOINT},
    "decoders": {"rm": {"max_steps": 3, "settings": {"margin": 0.5}}},
    "tables": [{"title": "t", "suite": "boards", "metrics": ["exact"], "rows": []}],
}
KINDS = {
    "build": Kind(build.main, [x for x in shipped("pipeline") if "trajectories:" in x]),
    "probe": Kind(probe.main, shipped("pipeline", "*top_k.yaml"), TOP_K, checkpoint),
    "rollout": Kind(
        rollout.main,
        [*shipped("pipeline", "*_rollout.yaml"), yaml.safe_dump(CHECKED, sort_keys=False)],
        ROLLOUT,
        checkpoint,
    ),
    "train": Kind(
        launch.main,
        [x for x in shipped("training") if "shards:" in x],
        TRAIN,
        functools.partial(built, is_probed=True),
    ),
    "rounds": Kind(
        launch.main,
        [x for x in shipped("training") if "rounds:" in x],
        ROUNDS,
        functools.partial(built, is_probed=True),
    ),
    "vq": Kind(vq.main, shipped("training", "*_vq.yaml")),
    "eval": Kind(evaluate.main, shipped("evaluation"), EVAL, checkpoint),
    "run": Kind(
        infra_run.main, shipped("infra"), files=functools.cache(stage_recipes), sections=verbs
    ),
}
TARGETS = tuple(
    Target(f"{what}-{name}", partial(make, kind), partial(run, kind), share=share)
    for name, kind in KINDS.items()
    for what, make, share in (("recipe", make_recipe, 1.5), ("overrides", make_overrides, 1.0))
)
