"""The reference of recipe keys: every key of every packaged recipe is in it, with a meaning."""

import dataclasses
import re
from typing import Annotated, Literal

import pytest

from remask.infra import keys as reference
from remask.infra import keys_shown
from remask.infra.catalogue import packaged_recipes
from remask.infra.cli import main
from remask.infra.field_docs import class_doc, field_docs
from remask.infra.keys import COMMON, REQUIRED, recipe_keys, recipe_kinds
from remask.models.ranges import Range
from remask.pipeline.runtime.plain_yaml import read_yaml

VERBS = list(recipe_kinds())
FREE = {"engine.deepspeed", "rounds.rollout", "model.settings", "recipes"}
"""Sections that others define: DeepSpeed's config, a rollout recipe, transformers' config, recipes
of a run's stages."""

SHARES = {"trajectories.rules"}
"""Numbers by name."""


def all_keys(verb):
    return [key for section in recipe_keys(verb) for key in section.keys]


def flattened(values, path=""):
    """The keys of a recipe as the reference writes them."""
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if place in FREE | SHARES or not isinstance(value, dict | list):
            yield place
        elif isinstance(value, dict):
            if place in ("suites", "decoders", "checkpoints"):
                yield place
                inner = [x for x in value.values() if isinstance(x, dict)]
                for section in inner:
                    yield from flattened(section, f"{place}.NAME")
            else:
                yield from flattened(value, place)
        else:
            yield place
            for item in value:
                if isinstance(item, dict):
                    yield from flattened(item, f"{place}[]")


@pytest.mark.parametrize("recipe", packaged_recipes(), ids=lambda recipe: recipe.full_name)
def test_the_reference_has_every_key_of_a_packaged_recipe(recipe):
    known = {key.path for key in all_keys(recipe.verb)}
    used = set(flattened(read_yaml(recipe.path.read_text(), "recipe")))
    tags = {path for path in used if path.rpartition(".")[2] in ("kind", "preset")}
    assert used - tags <= known
    assert used


@pytest.mark.parametrize("verb", VERBS)
def test_every_key_has_a_type_and_a_meaning_that_is_a_sentence(verb):
    for section in recipe_keys(verb):
        for key in section.keys:
            assert key.type
            assert re.search(r"[.:?`)*]$", key.meaning), f"{section.title}: {key}"


@pytest.mark.parametrize("verb", VERBS)
def test_sections_of_free_keys_are_known(verb):
    for key in all_keys(verb):
        if "any value, by name" in key.type:
            assert key.path in FREE, "name the registry in keys.py, or add the key to FREE"


def test_names_that_sections_share_are_those_that_fields_leave_out():
    used = {key.meaning for verb in VERBS for key in all_keys(verb)}
    assert set(COMMON.values()) <= used


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    """How to do it.

    Not in one line.
    """

    pace: Annotated[float | None, Range("(0, 1]")] = None
    """Share of the steps;
    none is all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class First:
    kind: Literal["first"] = "first"
    size: tuple[int, int] = (1, 2)
    """Height and width."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Second(First):
    kind: Literal["second"] = "second"
    names: tuple[str, ...]
    """Names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Toy:
    """A toy."""

    source: First | Second
    """Which."""
    inner: Inner = dataclasses.field(default_factory=Inner)
    text: str = ""
    """Any."""
    many: dict[str, Inner] = dataclasses.field(default_factory=dict)
    """Some."""


@pytest.fixture
def toy(monkeypatch):
    for module in (reference, keys_shown):
        monkeypatch.setattr(module, "recipe_kinds", lambda: {"toy": Toy})
    reference._all_sections.cache_clear()
    yield
    reference._all_sections.cache_clear()


def test_sections_follow_the_dataclasses(toy):
    top, first, second, inner, many = recipe_keys("toy")
    assert [x.title for x in (top, first, second, inner, many)] == [
        *("top level", "source (kind: first)", "source (kind: second)", "inner", "many.NAME")
    ]
    assert [(k.path, k.type, k.default, k.meaning) for k in top.keys] == [
        ("source", "keys with kind: first | second", REQUIRED, "Which."),
        ("inner", "keys", "", "How to do it."),
        ("text", "text", '""', "Any."),
        ("many", "keys, by name", "{}", "Some."),
    ]
    assert inner.meaning == "How to do it."
    pace = ("inner.pace", "number | none", "none", "(0, 1]", "Share of the steps; none is all.")
    assert [dataclasses.astuple(k) for k in inner.keys] == [
        (pace[0], pace[1], pace[2], pace[3], pace[4])
    ]
    assert [(k.path, k.type, k.default) for k in second.keys] == [
        ("source.size", "[integer, integer]", "[1, 2]"),
        ("source.names", "list of text", REQUIRED),
    ]
    assert recipe_keys("toy", "source", "second") == [second]
    assert recipe_keys("toy", "many") == [many]
    (single,) = recipe_keys("toy", "inner.pace")
    assert single.keys == inner.keys


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy", "sauce"], "toy recipes have no section or key 'sauce'; sections: source, inner"),
        (["joy"], "there is no recipe of 'joy'; recipes are of toy"),
        (["toy", "source", "third"], "has no kind 'third'; its kinds are first, second"),
        (["toy", "inner", "third"], "has no kind 'third'; it has no kinds"),
        (["toy", "a", "b", "c"], "keys takes a verb, a section and a kind, got 4 words"),
    ],
)
def test_unknown_names_are_answered_with_those_there_are(toy, words, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["recipes", "keys", *words])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_fields_without_texts_have_none():
    assert field_docs(Second) == {"size": "Height and width.", "names": "Names."}
    assert class_doc(First) == ""
    assert class_doc(Toy) == "A toy."


def test_registered_kinds_are_sections():
    needs = {
        need for verb in ("build", "train", "eval") for x in recipe_keys(verb) for need in x.when
    }
    assert needs >= {
        *("kind: text", "kind: sudoku", "kind: image_edit", "kind: files"),
        *("kind: llada", "kind: masked_lm", "kind: mbpp"),
        *("policy: revision", "policy: p2"),
    }
    (optimizer,) = recipe_keys("train", "optimizer")
    rate = next(key for key in optimizer.keys if key.path == "optimizer.lr")
    assert (rate.type, rate.default, rate.range) == ("number", "0.02", "(0, inf)")
    kinds = {key.path: key.type for key in all_keys("build") + all_keys("train")}
    assert kinds["proposal.kind"] == "uniform | wrong_digit | top_k | source"
    assert kinds["objective.kind"] == "sft | pretrain | rm"


def test_a_line_per_key_is_printed_for_grep(capsys):
    main(["recipes", "keys", "train", "optimizer"])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("# optimizer: The optimizer, its learning rates")
    (optimizer,) = recipe_keys("train", "optimizer")
    assert [x.split()[0] for x in lines] == [key.path for key in optimizer.keys]
    (line,) = [x for x in lines if x.startswith("optimizer.lr ")]
    assert re.fullmatch(
        r"optimizer.lr +number in \(0, inf\) +0.02 +Peak learning rate of `kind`.", line
    )


def test_a_terminal_gets_lines_that_fit(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    main(["recipes", "keys", "build", "source", "text"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(" " * 20) for line in lines)


def test_the_overview_names_every_recipe_and_its_sections(capsys):
    main(["recipes", "keys"])
    lines = capsys.readouterr().out.splitlines()
    assert [x.split()[0] for x in lines[: len(VERBS)]] == VERBS
    (line,) = [x for x in lines if x.startswith("eval ")]
    assert "suites.NAME, decoders.NAME" in line
