"""The stages as drivers of a Ray cluster that is there already, by every documented `python -m`."""

import ast
import re
import subprocess
import tomllib
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from packaging.requirements import Requirement
from ray._raylet import AuthenticationMode, get_authentication_mode

from remask.models import SudokuConfig, SudokuMDM, save
from remask.pipeline.runtime.jobs import ray_session
from tests.places import ROOT
from tests.ray_head import ray_head

ROOMS = ("kernels", "models", "pipeline", "training", "evaluation", "infra")
BOARDS = {"kind": "sudoku", "side": 4}


@pytest.fixture(scope="module")
def head():
    with ray_head() as head:
        yield head


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run") / "model"
    save(SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)), folder)
    return str(folder)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory, checkpoint):
    """A tiny recipe for each kind of stage, and their outputs below one folder."""
    folder = tmp_path_factory.mktemp("recipes")
    build = {
        "output": str(folder / "data"),
        "source": BOARDS | {"train": 12, "held_out": 4},
        "trajectories": {"noisy_count": [1, 4]},
        "proposal": {"kind": "top_k", "backbone": checkpoint, "k": 2},
        "examples_per_shard": 4,
    }
    evaluation = {
        "output": str(folder / "eval"),
        "suites": {"boards": BOARDS | {"boards": 6, "wrong": [1, 4]}},
        "checkpoints": {"model": checkpoint},
        "decoders": {"rm": {"max_steps": 2}},
        "samples_per_chunk": 3,
    }
    decodes = {
        "output": str(folder / "decodes"),
        "checkpoint": checkpoint,
        "source": BOARDS | {"train": 12, "held_out": 4},
        "examples_per_shard": 4,
    }
    for name, values in (("build", build), ("rollout", decodes), ("eval", evaluation)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values))
    return folder


STAGES = {
    "remask.pipeline.source": (["build.yaml"], "source: 4 of 4 units made"),
    "remask.pipeline.probe": (["build.yaml"], "probe: 4 of 4 units made"),
    "remask.pipeline.build": (["build.yaml"], "build: 4 of 4 units made"),
    "remask.pipeline.rollout": (["rollout.yaml"], "rollout: 4 of 4 units made"),
    "remask.evaluation.evaluate": (["eval.yaml"], "eval: 2 of 2 units made"),
    "remask.evaluation.ceiling": (
        ["--side", "4", "--boards", "60"],
        "60 boards with 1 to 4 wrong cells",
    ),
}
"""Modules that ship work to Ray when run by `python -m`: their arguments and what they say."""
BENCHES = {"remask.infra.benches.pipeline", "remask.infra.benches.evaluation"}
"""These do too, but take minutes."""


@pytest.mark.parametrize("module", STAGES)
def test_every_module_runs_with_ray_workers(module, head, recipes):
    arguments, says = STAGES[module]
    paths = [str(recipes / x) if x.endswith(".yaml") else x for x in arguments]
    done = head.run(module, *paths)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def run_as_main():
    """The modules that `python -m` can run, and their syntax trees."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            if '__name__ == "__main__"' in text:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                yield f"remask.{name}", ast.parse(text)


def ships_work(tree):
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "remask.pipeline.runtime.jobs"
        for alias in node.names
    }
    return bool(imported & {"run_tasks", "run_actors"})


def test_what_ships_work_to_ray_is_run_here_and_defines_no_class():
    """Run as `__main__`, a class would be pickled by value, with whatever locks it holds."""
    shipping = {name: tree for name, tree in run_as_main() if ships_work(tree)}
    assert set(shipping) == set(STAGES) | BENCHES
    for name, tree in shipping.items():
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        assert not classes, f"{name} is run as __main__; move {classes} to a module that is not"


def test_every_documented_module_is_there():
    texts = [(ROOT / "README.md").read_text()]
    for room in ROOMS:
        texts += [x.read_text() for x in (ROOT / room).rglob("*") if x.suffix in (".py", ".md")]
    documented = {x for text in texts for x in re.findall(r"python -m ((?:\w+\.)+\w+)", text)}
    assert documented
    assert (ROOT / "tests" / "fuzz" / "__main__.py").is_file()
    assert documented <= {"tests.fuzz", *(name for name, _ in run_as_main())}


def answers(head, token):
    """The status with which the head's job server answers a client with this token."""
    request = urllib.request.Request(f"{head.dashboard}/api/jobs/")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_head_as_documented_lets_in_those_with_its_token_alone(head):
    assert answers(head, head.environment["RAY_AUTH_TOKEN"]) == 200
    assert answers(head, None) == 401
    assert answers(head, "wrong" * 8) == 403


@pytest.mark.slow
def test_a_driver_without_the_token_is_told_so_in_a_line(head):
    stranger = replace(head, environment=head.environment | {"RAY_AUTH_TOKEN": "wrong" * 8})
    done = stranger.run("remask.evaluation.ceiling", *STAGES["remask.evaluation.ceiling"][0])
    assert done.returncode == 1
    assert "remask.evaluation.ceiling: Ray did not start: " in done.stderr
    assert "; check RAY_ADDRESS and the token\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_supported_ray_starts_without_a_token():
    """From 2.59 on a local Ray asks for one unless told not to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (ray,) = (Requirement(x) for x in project["dependencies"] if x.startswith("ray"))
    assert not ray.specifier.contains("2.58.1")
    with ray_session(1):
        assert get_authentication_mode() == AuthenticationMode.TOKEN


def test_the_end_of_a_head_leaves_other_rays_alone(head):
    with ray_head() as other:
        assert answers(other, other.environment["RAY_AUTH_TOKEN"]) == 200
    assert other.process.poll() is not None
    assert head.process.poll() is None
    assert answers(head, head.environment["RAY_AUTH_TOKEN"]) == 200


def test_nothing_ends_processes_by_a_broad_name():
    """`ray stop` and the like would end what others on this machine run."""
    broad = re.compile(r"\bray[\"', ]+stop\b|\bpkill\b|\bkillall\b")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in (".py", ".sh", ".md", ".yaml") and path.name != Path(__file__).name:
            assert not broad.search(path.read_text()), f"{name} ends more than it started"
