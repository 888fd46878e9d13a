"""Any value at any place of a recipe: a recipe comes of it, or a ValueError; nothing else."""

import copy
import datetime
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remask.evaluation.recipe import EvalRecipe
from remask.infra.run import RunRecipe
from remask.models.config import from_mapping
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.pipeline.runtime.command import plain
from remask.pipeline.runtime.recipes import load_recipe
from remask.training.recipe import TrainRecipe
from remask.training.vq import VQRecipe

SHAPES = {"kind": "shapes", "train": 8, "held_out": 4}
DECODER = {"policy": "revision", "settings": {"margin": 0.5}, "max_steps": 4}
RECIPES = {
    BuildRecipe: [
        {
            "output": "data",
            "source": {"kind": "sudoku", "side": 4, "train": 10, "held_out": 5},
            "trajectories": {"horizon": 6, "noisy_count": [1, 4], "doubt_share": 0.1},
            "proposal": {"preset": "released", "backbone": "model", "k": 4},
            "run": {"workers": 0, "gpus_per_probe": 0.5},
            "seed": 1,
            "replicas": 2,
            "cache": None,
        },
        {
            "output": "data",
            "source": {
                "kind": "text",
                "data": "sums.jsonl",
                "tokenizer": "tokenizer",
                "prompt": "Q: {question}",
                "response": "{answer}",
                "max_length": 64,
            },
            "trajectories": {
                "noisy_rate": [0.05, 0.5],
                "rules": {"wrong": 0.6, "mask": 0.3, "relapse": 0.1},
            },
        },
        {
            "output": "data",
            "source": {"kind": "image_edit", "tokenizer": "vq", "pairs": SHAPES},
            "trajectories": {"noisy_rate": [0.05, 0.5], "together_share": 0.5},
        },
    ],
    TrainRecipe: [
        {
            "shards": "data",
            "output": "run",
            "model": {"kind": "sudoku", "side": 4},
            "history": {"decay": 0.5},
            "objective": {"kind": "rm"},
            "optimizer": {"kind": "muon", "lr": 0.01},
            "steps": 3,
            "engine": {"zero_stage": 1, "deepspeed": {"zero_optimization": {"overlap_comm": True}}},
            "save": {"every": 5},
            "held_out": {"every": 5},
            "log": {"every": 5},
            "spikes": {"factor": 3.0},
        },
        {"shards": "data", "output": "run", "start": "model", "epochs": 1.5, "lora": {"rank": 4}},
    ],
    EvalRecipe: [
        {
            "output": "eval",
            "suites": {
                "boards": {"kind": "sudoku", "side": 4, "boards": 3, "wrong": [1, 4]},
                "words": {"kind": "gsm8k", "preset": "paper", "data": "a.jsonl", "tokenizer": "t"},
            },
            "checkpoints": {"one": "a", "both": ["a", "b"]},
            "decoders": {"rm": DECODER, "edits": {"preset": "released"}},
            "runs": [{"suites": ["boards"], "decoders": ["rm"]}],
            "tables": [
                {
                    "title": "boards",
                    "suite": "boards",
                    "metrics": ["exact"],
                    "rows": [{"label": "ours", "checkpoint": "one", "decoder": "rm"}],
                }
            ],
            "run": {"workers": 0},
        }
    ],
    RolloutRecipe: [
        {
            "output": "data",
            "checkpoint": "model",
            "source": {"kind": "sudoku", "side": 4, "train": 10, "held_out": 5},
            "decoders": {"steps": [3, 5], "margin": [0.0, -1.0], "patience": 1},
            "start": "blank",
            "max_segments": 8,
            "run": {"workers": 0, "gpus_per_rollout": 0.5},
        }
    ],
    VQRecipe: [{"output": "vq", "pairs": SHAPES, "tokenizer": {"patch": 4}, "learning": {}}],
    RunRecipe: [{"stages": ["build a.yaml", "report x"]}],
}
BASES = [(kind, base) for kind, bases in RECIPES.items() for base in bases]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1 << 31, 1 << 62, 1 << 80, 10**400]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["sudoku", "s3://a", "zip://a::b", "\x00", "\ud800", "[/red]", "a" * 300]),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(scalars, inner, max_size=3),
        st.dictionaries(st.sampled_from(["kind", "preset", "data", "stage"]), inner, max_size=3),
        st.sets(st.integers(), max_size=2),
    ),
    max_leaves=6,
)


def places(values, above=()):
    """The keys that lead to every value below."""
    inner = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in inner:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


def with_value(base, place, value):
    changed = copy.deepcopy(base)
    section = changed
    for key in place[:-1]:
        section = section[key]
    section[place[-1]] = value
    return changed


@pytest.mark.parametrize(("kind", "base"), BASES, ids=lambda x: getattr(x, "__name__", ""))
def test_the_recipes_themselves_are_read(kind, base, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(base))
    assert json.loads(json.dumps(plain(load_recipe(kind, path, []))))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes") / "recipe.yaml"


@pytest.mark.parametrize(("kind", "base"), BASES, ids=lambda x: getattr(x, "__name__", ""))
@settings(max_examples=200)
@given(data=st.data())
def test_a_recipe_comes_of_it_or_a_value_error(kind, base, path, data):
    place = data.draw(st.sampled_from(list(places(base))))
    changed = with_value(base, place, data.draw(values))
    path.write_bytes(yaml.safe_dump(changed, allow_unicode=False).encode("utf-8", "surrogatepass"))
    try:
        recipe = load_recipe(kind, path, [])
    except ValueError:
        return
    written = json.dumps(plain(recipe), allow_nan=False)
    assert json.loads(written) == plain(recipe)


@pytest.mark.parametrize(("kind", "base"), BASES, ids=lambda x: getattr(x, "__name__", ""))
@given(data=st.data())
def test_overrides_do_so_too(kind, base, path, data):
    place = data.draw(st.sampled_from([p for p in places(base) if all(type(x) is str for x in p)]))
    more = data.draw(st.lists(st.sampled_from(["", "kind", "a", "0"]), max_size=2))
    text = data.draw(st.one_of(st.text(max_size=20), st.text("[]{}:&*!<-0x.eE'\"T ", max_size=12)))
    path.write_text(yaml.safe_dump(base))
    try:
        recipe = load_recipe(kind, path, [f"{'.'.join([*place, *more])}={text}"])
    except ValueError:
        return
    json.dumps(plain(recipe), allow_nan=False)


TEXTS = {
    "deep": "a: " + "[" * 5000,
    "deep_but_closed": "a: " + "[" * 200 + "]" * 200,
    "laughs": "a0: &a0 [x, x]\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
    "merged": "a0: &a0 {x: 1}\n"
    + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 40)),
    "endless": "a: &a [*a]",
    "itself": "&a {*a : 1}",
    "tab": "a:\n\t- b",
    "nul": "a: \x00",
    "date": "output: 2024-01-01",
    "month": "output: 2024-13-01",
    "number": "output: !!int x",
    "flag": "output: !!bool x",
    "time": "output: !!timestamp x",
    "bytes": "output: !!binary aGk=",
    "set": "output: !!set {a}",
    "object": "output: !!python/object:os.system {}",
    "list_as_key": "? [a]\n: b",
    "digits": "seed: 1" + "0" * 5000,
    "hex": "seed: 0x" + "f" * 9000,
    "empty": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("kind", RECIPES, ids=lambda kind: kind.__name__)
def test_hostile_files_are_refused(kind, text, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="recipe.yaml"):
        load_recipe(kind, path, [])


def test_files_that_hold_no_text_are_named(tmp_path):
    (tmp_path / "recipe.yaml").write_bytes(b"output: \xff")
    with pytest.raises(ValueError, match="recipe.yaml is not UTF-8: invalid start byte at byte 8"):
        load_recipe(BuildRecipe, tmp_path / "recipe.yaml", [])
    with pytest.raises(ValueError, match="cannot read recipe .*: Is a directory"):
        load_recipe(BuildRecipe, tmp_path, [])


@pytest.mark.parametrize(
    ("kind", "override", "message"),
    [
        (EvalRecipe, "suites.boards=5", "suites: boards: expected keys and values, got 5"),
        (EvalRecipe, "suites.boards.kind=[1]", r"suites: boards: kind must be one of .* got \[1\]"),
        (EvalRecipe, "suites.words.preset=[1]", r"preset must be one of .* got \[1\]"),
        (TrainRecipe, "engine.zero_stage=true", r"zero_stage must be one of \[0, 1, 2, 3\]"),
        (
            TrainRecipe,
            "model.since=!!timestamp 2024-01-01",
            "the value must be text, .* got date; put text in",
        ),
        (TrainRecipe, "engine.deepspeed.x={1: 2}", "key 1 is not text; put it in quotes"),
        (TrainRecipe, "optimizer.lr=.nan", "finite number"),
    ],
)
def test_the_place_is_named(kind, override, message, path):
    path.write_text(yaml.safe_dump(RECIPES[kind][0]))
    with pytest.raises(ValueError, match=message):
        load_recipe(kind, path, [override])


def test_values_given_in_python_are_plain_too():
    recipe = RECIPES[TrainRecipe][0]
    with pytest.raises(ValueError, match="model: since must be text, .* got date"):
        from_mapping(TrainRecipe, recipe | {"model": {"since": datetime.date(2024, 1, 1)}}, "here")
