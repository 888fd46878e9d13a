"""Every command and every block in every document.

Commands are read by their own parsers, and their recipes are loaded; blocks are compiled; what is
cheap is run. A document that says what does not work fails here.
"""

import ast
import importlib
import importlib.util
import inspect
import json
import re
import sys

import pytest
import torch

import remask
from remask.evaluation.tune import load_data_recipe
from remask.infra.cli import VERBS, main
from remask.infra.keys import recipe_keys, recipe_kinds
from remask.infra.run import find_recipes, with_overrides
from remask.models.config import from_mapping
from remask.pipeline.runtime.plain_yaml import read_yaml
from remask.pipeline.runtime.recipes import find_recipe, load_recipe, make_recipe
from remask.pipeline.sources.sudoku_rules import conflict_cells, parse_board
from tests.documents import (
    LAUNCHER_OPTIONS,
    PROGRAMS,
    RefusedError,
    blocks,
    commands,
    documents,
    is_placeholder,
    parse,
    split_line,
)
from tests.evaluation.folders import make_folder
from tests.infra.test_keys import flattened
from tests.places import ROOT
from tests.sums import write_sums, write_word_tokenizer

OWN = re.compile(r"(mine|my)/.*|(mine|my|my_\w+|recipe|training|own|data|sums)\.yaml(:\w+)?")
"""Recipes that documents tell their readers to write."""
TOYS = ("palindrome", "neighbour")
"""Kinds that a checklist adds, and its test."""
CHEAP = ("recipes", "--version")
"""Verbs that are run as documents give them."""
MODULE_OF = {module: verb for verb, module in VERBS.items()}
PYTHON = [x for x in blocks() if x.language == "python"]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(ROOT)  # where documents say that commands are given


def test_documents_are_found_with_their_blocks():
    assert {"README.md", "pipeline/README.md", "infra/docs/faq.md"} <= set(documents())
    assert len(documents()) > 20
    assert {x.language for x in blocks()} <= {"", "python", "yaml", "json", "diff"}
    assert len(commands()) > 100


@pytest.mark.parametrize("command", commands(), ids=str)
def test_a_command_is_one_that_its_parser_takes(command):
    check(list(command.words), command.is_whole)


def check(words, is_whole):
    program, *rest = words
    assert program in PROGRAMS, f"{program} is not among PROGRAMS of tests/documents.py"
    if program == "remask":
        check_verb(rest, is_whole)
    elif program == "python":
        check_python(rest, is_whole)
    elif program == "bash":
        check_files(rest)
    elif program == "deepspeed":
        at = rest.index("--module")
        options = [x for x in rest[:at] if x.startswith("-")]
        assert set(options) <= LAUNCHER_OPTIONS
        check_module(rest[at + 1], rest[at + 2 :], is_whole)
    elif program == "ray":
        assert rest[:2] == ["job", "submit"] or rest[0] == "start"
        if "--" in rest:
            check(rest[rest.index("--") + 1 :], is_whole)


def check_files(words):
    """Scripts and tests that are named are there."""
    for word in words:
        if "/" in word and not word.startswith("-"):
            assert (ROOT / word).exists(), f"there is no {word}"


def check_python(words, is_whole):
    if words[0] != "-m":
        check_files(words[:1])
    elif words[1] == "pytest":
        check_files(words[2:])
    elif words[1] != "http.server":
        check_module(words[1], words[2:], is_whole)


def check_module(name, words, is_whole):
    assert importlib.util.find_spec(name), f"there is no module {name}"
    if name in MODULE_OF:
        check_verb([MODULE_OF[name], *words], is_whole)
    elif name == "remask.infra.cli":
        assert not words
    else:
        is_package = importlib.util.find_spec(name).submodule_search_locations is not None
        module = importlib.import_module(f"{name}.__main__" if is_package else name)
        if inspect.signature(module.main).parameters:
            arguments = read(module.main, words, is_whole)
            if name.startswith("remask.training") and arguments is not None:
                check_recipe("train", arguments)


def check_verb(words, is_whole):
    verb, *rest = words
    if verb in ("VERB", "--help", "--version"):
        return
    assert verb in VERBS, f"there is no verb {verb}"
    if verb == "harness" or "--help" in rest:
        return  # lm-evaluation-harness parses its own arguments
    arguments = read(importlib.import_module(VERBS[verb]).main, rest, is_whole)
    if arguments is not None and verb in (*recipe_kinds(), "tune"):
        check_recipe(verb, arguments)


def read(command, words, is_whole):
    """The arguments, or None if a mention in a sentence leaves some out."""
    words = [x for x in words if x not in ("...", "…")]
    numbers = [re.sub(r"(?<==)[A-Z]+$", "1", x) for x in words]
    try:
        return parse(command, numbers)
    except RefusedError as error:
        message = str(error)
        is_partial = "required" in message or "expected" in message
        is_partial |= any(is_placeholder(x) and x in message for x in words)
        if is_whole or not is_partial:
            raise AssertionError(message) from error
    return None


def check_recipe(verb, arguments):
    name = arguments.recipe
    if is_placeholder(name) or "ROOM/" in name or OWN.fullmatch(name):
        return
    overrides = [x for x in arguments.overrides if not re.search(r"\bNAME\b", x)]
    if verb == "tune":
        load_data_recipe(name, overrides)
    elif verb == "run":
        kind = recipe_kinds()["run"]
        path = find_recipe(kind, name)
        run = load_recipe(kind, path, [])
        own = {name: f"{path}:{name}" for name in run.recipes}
        find_recipes(with_overrides(run.stages, overrides, own), path.parent, own)
    else:
        load_recipe(recipe_kinds()[verb], name, overrides)


RUN = [x for x in commands() if x.is_whole and x.words[:1] == ("remask",) and x.words[1] in CHEAP]


@pytest.mark.parametrize("command", RUN, ids=str)
def test_a_command_that_is_cheap_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = list(command.words[1:])
    if "new" in words:  # for data of the reader's own
        data, tokenizer = (words[words.index(x) + 1] for x in ("--data", "--tokenizer"))
        write_sums(tmp_path / data)
        write_word_tokenizer(tmp_path / tokenizer)
    main(words)
    assert capsys.readouterr().out
    if "new" in words:
        (written,) = tmp_path.glob("*.yaml")
        main(["run", written.name, "--dry-run"])


def test_the_first_thing_to_see_works(capsys):
    """The board of the guide is repaired."""
    (command,) = [
        x
        for x in commands()
        if x.words[:2] == ("remask", "revise") and "getting_started" in x.where
    ]
    main(list(command.words[1:]))
    given, (revised,) = command.words[-1], re.findall(r"^\d{81}$", capsys.readouterr().out, re.M)
    broken = [conflict_cells(parse_board(x)[None]).any() for x in (given, revised)]
    assert broken == [True, False]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles_and_names_what_there_is(block):
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "remask":
                getattr(remask, node.attr)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("remask"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or importlib.util.find_spec(
                    f"{node.module}.{name.name}"
                )


STAGES = {"build": "build", "train": "train", "evaluate": "eval"}


def stage_calls(block):
    """(function, call) of the stages that a block runs."""
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            value = node.func.value
            if isinstance(value, ast.Name) and value.id == "remask" and node.func.attr in STAGES:
                yield node.func.attr, node


@pytest.mark.parametrize("block", [x for x in PYTHON if any(stage_calls(x))], ids=str)
def test_stages_in_python_have_recipes_that_fit(block):
    for name, call in stage_calls(block):
        arguments = [ast.literal_eval(x) for x in call.args]
        if OWN.fullmatch(arguments[0]):
            continue
        overrides = {x.arg: ast.literal_eval(x.value) for x in call.keywords if x.arg}
        bound = inspect.signature(getattr(remask, name)).bind(*arguments, **overrides)
        kind = recipe_kinds()[STAGES[name]]
        assert make_recipe(kind, arguments[0], bound.arguments.get("overrides", {}))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with a small data set and an evaluation, where the packaged recipes put theirs."""
    folder = tmp_path_factory.mktemp("work")
    runs = folder / "runs/sudoku4"
    small = {"source__train": 64, "source__held_out": 16, "run__workers": 0}
    remask.build("sudoku4", output=runs / "data", **small)
    make_folder(runs / "eval")
    return folder


def is_module(block):
    """Whether a block is a file that a checklist adds; the checklist's test runs it."""
    return bool(re.match(r'"""|# \w+/.*\.py\n', block.text))


@pytest.mark.parametrize(
    "block", [x for x in PYTHON if not any(stage_calls(x)) and not is_module(x)], ids=str
)
def test_python_that_is_cheap_runs(block, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    boards = torch.zeros(2, 81, dtype=torch.long)  # which some blocks are given
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__", "boards": boards})


def test_modules_in_documents_are_those_that_checklists_follow():
    assert {x.document for x in PYTHON if is_module(x)} == {
        *("evaluation/README.md", "models/README.md", "pipeline/README.md")
    }


@pytest.mark.parametrize("block", [x for x in blocks() if x.language == "yaml"], ids=str)
def test_yaml_is_a_recipe_or_keys_of_one(block, tmp_path):
    values = read_yaml(block.text, str(block))
    if any(f"kind: {toy}" in block.text for toy in TOYS):
        return
    if "stages" in values:
        name = tmp_path / "run.yaml"
        name.write_text(block.text)
        main(["run", str(name), "--dry-run"])
        return
    if "output" in values:
        errors = []
        for kind in dict.fromkeys(recipe_kinds().values()):
            try:
                from_mapping(kind, values, kind.__name__)
                return
            except ValueError as error:
                errors.append(str(error))
        raise AssertionError("; ".join(errors))
    used = {x for x in flattened(values) if x.rpartition(".")[2] not in ("kind", "preset")}
    fits = [
        verb
        for verb in recipe_kinds()
        if used <= {key.path for section in recipe_keys(verb) for key in section.keys}
    ]
    assert fits, used


@pytest.mark.parametrize("block", [x for x in blocks() if x.language == "json"], ids=str)
def test_json_can_be_read(block):
    for line in [block.text] if block.text.startswith("{\n") else block.text.splitlines():
        json.loads(line)


def test_names_of_python_in_sentences_exist():
    for document, text in documents().items():
        for name in re.findall(r"`(remask(?:\.\w+)+)", text):
            module, _, attribute = name.rpartition(".")
            is_module = importlib.util.find_spec(module) and importlib.util.find_spec(name)
            owner = importlib.import_module(module)
            assert is_module or hasattr(owner, attribute), f"{document}: {name}"


def test_lines_are_split_as_a_shell_does():
    assert split_line("A=1 remask build x 'a b=c' | head -1 && cd y > out  # why") == [
        ("remask", "build", "x", "a b=c"),
        ("head", "-1"),
        ("cd", "y"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["remask", "biuld", "sudoku4"],
        ["remask", "build", "sudoku5"],
        ["remask", "build", "sudoku4", "sauce.train=1"],
        ["remask", "train", "sudoku4", "--cores", "2"],
        ["remask", "shards"],
        ["remask", "run", "sudoku4", "bake.seed=1"],
        ["python", "-m", "remask.pipeline.bake", "sudoku4"],
        ["python", "-m", "remask.training.train", "sudoku5"],
        ["bash", "infra/none.sh"],
        ["deepspeed", "--hosts", "x", "--module", "remask.training.train", "sudoku4"],
        ["ray", "job", "submit", "--", "python", "-m", "remask.pipeline.build", "sudoku5"],
        ["curl", "x"],
    ],
)
def test_what_does_not_work_is_caught(words):
    with pytest.raises((AssertionError, ValueError)):
        check(words, True)


def test_python_of_this_process_is_left_as_it_was():
    assert "argparse" in sys.modules
    assert sys.modules["argparse"].ArgumentParser.error.__qualname__ == "ArgumentParser.error"
