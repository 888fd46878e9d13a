"""remask as it is installed, beside packages of others that have the names of its folders."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from transformers.utils.import_utils import KERNELS_MIN_VERSION

from tests.infra.installs import Install, copy_clone, dependencies_alone, with_pip
from tests.places import ROOT
from tests.ray_head import ray_head
from tests.registry import download
from tests.training.runs import free_port

ROOMS = ("kernels", "models", "pipeline", "training", "evaluation", "infra")
BOARD = "1234341221434321"
BUILD = {
    "output": "data",
    "source": {"kind": "sudoku", "side": 4, "train": 24, "held_out": 8},
    "trajectories": {"noisy_count": [1, 4]},
    "examples_per_shard": 8,
    "run": {"workers": 1},
}
TRAIN = {
    "shards": "data",
    "output": "run",
    "model": {"kind": "sudoku", "side": 4, "layers": 1, "width": 16, "heads": 2},
    "steps": 2,
    "batch_size": 8,
    "held_out": {"every": 0},
    "log": {"tensorboard": False},
}
EVAL = {
    "output": "scores",
    "suites": {"boards": {"kind": "sudoku", "side": 4, "boards": 4, "wrong": [1, 4]}},
    "checkpoints": {"model": "run/model"},
    "decoders": {"rm": {"max_steps": 2}},
    "run": {"workers": 1},
}
COMMANDS = [
    (["build", "build.yaml"], "build: 4 of 4 units made"),
    (["train", "train.yaml"], "train: 2 steps done"),
    (["eval", "eval.yaml"], "eval: 1 of 1 units made"),
    (["revise", "--checkpoint", "run/model", f"{BOARD} {'0' * 16}"], BOARD),
]


def make_project(folder):
    """A user's project, with recipes, and packages of its own with the names of our folders."""
    for room in ROOMS:
        (folder / room).mkdir(parents=True)
        hostile = f"raise RuntimeError('{room} of the project was imported')\n"
        (folder / room / "__init__.py").write_text(hostile)
    for name, recipe in (("build", BUILD), ("train", TRAIN), ("eval", EVAL)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(recipe))
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make_project(tmp_path_factory.mktemp("project") / "mine")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return copy_clone(tmp_path_factory.mktemp("clone") / "remask")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The dependencies alone."""
    return dependencies_alone(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module", params=["wheel", "editable", "clone"])
def install(request, tmp_path_factory):
    """Each way to have remask, and the folder that its modules must come from."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    if request.param == "wheel":
        made = with_pip(folder, request.getfixturevalue("wheel"))
        return made, made.site / "remask"
    clone = request.getfixturevalue("clone")
    if request.param == "editable":
        return with_pip(folder, "--editable", clone), clone
    return Install(dependencies_alone(folder).folder, {"PYTHONPATH": str(clone)}), clone


WHERE = """
import json, sys, remask, remask.kernels.ops, remask.infra.catalogue
recipe = remask.infra.catalogue.find_packaged("sudoku_small").path
print(json.dumps([remask.kernels.ops.__file__, str(recipe)]))
"""


def test_every_install_is_imported_from_any_folder(install, project):
    made, source = install
    done = made.run("-c", WHERE, cwd=project)
    assert done.returncode == 0, done.stderr
    for file in json.loads(done.stdout):
        assert Path(file).is_relative_to(source)


def test_a_bare_clone_is_imported_at_its_root_alone(bare, clone, tmp_path):
    assert bare.run("-m", "remask.infra.cli", "--help", cwd=clone).returncode == 0
    elsewhere = bare.run("-m", "remask.infra.cli", "--help", cwd=tmp_path)
    assert "No module named 'remask'" in elsewhere.stderr


@pytest.mark.parametrize(("command", "says"), COMMANDS, ids=[x[0][0] for x in COMMANDS])
def test_a_project_keeps_its_own_packages(command, says, project):
    """The commands run inside it, with Ray's workers and DeepSpeed's ranks; each needs the last."""
    done = subprocess.run(
        [sys.executable, "-m", "remask.infra.cli", *command],
        cwd=project,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


@pytest.mark.slow
def test_every_install_runs_all_stages_in_a_project(install, tmp_path):
    made, _ = install
    project = make_project(tmp_path / "mine")
    script = made.python.with_name("remask")
    start = [script] if script.exists() else ["-m", "remask.infra.cli"]
    for command, says in COMMANDS:
        done = made.run(*start, *command, cwd=project)
        assert done.returncode == 0, done.stderr
        assert says in done.stdout


@pytest.mark.slow
def test_a_packaged_run_goes_from_nothing_to_a_report_in_any_folder(wheel, tmp_path):
    made = with_pip(tmp_path / "venv", wheel)
    small = ["build.source.train=64", "build.source.held_out=16", "build.run.workers=0"]
    small += ["train.steps=2", "train.held_out.every=0"]
    small += ["eval.suites.boards.boards=4", "eval.run.workers=0"]
    done = made.run(made.python.with_name("remask"), "run", "sudoku4", *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/sudoku4/eval/report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wheel", "clone"])
def test_the_deepspeed_launcher_runs_the_module(how, bare, clone, wheel, tmp_path):
    """From any folder if remask is installed, at the root of a clone if not."""
    project = make_project(tmp_path / "mine")
    made = bare if how == "clone" else with_pip(tmp_path / "venv", wheel)
    cwd = clone if how == "clone" else project
    data = f"{project}/data"
    build = ["remask.pipeline.build", project / "build.yaml", f"output={data}", "run.workers=0"]
    done = made.run("-m", *build, cwd=cwd)
    assert done.returncode == 0, done.stderr
    deepspeed = made.python.with_name("deepspeed")
    where = ["--num_gpus", "1", "--master_addr", "127.0.0.1", "--master_port", free_port()]
    train = ["remask.training.train", project / "train.yaml", f"shards={data}"]
    launcher = Install(made.folder, {"DS_ACCELERATOR": "cpu"})
    done = launcher.run(deepspeed, *where, "--module", *train, f"output={project}/run", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert "train: 2 steps done" in done.stdout


def submit(head, folder, recipe, output):
    """`ray job submit --working-dir . -- python -m remask.pipeline.build RECIPE`."""
    job = ["python", "-m", "remask.pipeline.build", recipe, "source.train=24", "source.held_out=8"]
    done = head.submit(*job, f"output={output}", "examples_per_shard=8", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "build: 4 of 4 units made" in done.stdout


@pytest.mark.slow
def test_a_job_brings_a_clone_to_a_cluster_that_has_the_dependencies_alone(bare, tmp_path):
    assert bare.run("-c", "import remask", cwd=tmp_path).returncode == 1
    with ray_head(bare.python) as head:
        submit(head, ROOT, "pipeline/recipes/sudoku4.yaml", tmp_path / "data")


@pytest.mark.slow
def test_a_cluster_that_has_remask_takes_a_clone_or_a_recipe_alone(wheel, tmp_path):
    with ray_head(with_pip(tmp_path / "venv", wheel).python) as head:
        submit(head, ROOT, "pipeline/recipes/sudoku4.yaml", tmp_path / "of_clone")
        project = make_project(tmp_path / "mine")
        submit(head, project, "build.yaml", tmp_path / "of_project")
        submit(head, project, "sudoku4", tmp_path / "of_package")


STAND_IN = """
class _Part:
    def __init__(self, *arguments, **settings):
        pass

    def __call__(self, decorated=None, *arguments, **settings):
        return decorated


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Part
"""
USE_KERNELS = """
import remask
import transformers, torch
from transformers import BertConfig, BertForMaskedLM
from transformers.utils.import_utils import is_kernels_available
config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                    intermediate_size=8)
assert BertForMaskedLM(config)(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 20)
import kernels
import remask.kernels
assert remask.kernels.history_step
print(kernels.__file__, kernels.get_kernel, is_kernels_available())
"""


def add_stand_in(site):
    """A package as Hugging Face's in name and version, which transformers therefore imports."""
    package, info = site / "kernels", site / f"kernels-{KERNELS_MIN_VERSION}.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text(STAND_IN)
    metadata = f"Metadata-Version: 2.1\nName: kernels\nVersion: {KERNELS_MIN_VERSION}\n"
    (info / "METADATA").write_text(metadata)


@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_transformers_gets_the_kernels_it_asks_for(where, clone, tmp_path):
    """At the root of a clone `kernels/` of ours comes first on Python's path."""
    made = dependencies_alone(tmp_path / "venv")
    add_stand_in(made.site)
    if where == "elsewhere":
        made = Install(made.folder, {"PYTHONPATH": str(clone)})
    done = made.run("-c", USE_KERNELS, cwd=clone if where == "root" else tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(made.site / "kernels"))
    assert done.stdout.endswith(" True\n")


@pytest.mark.slow
def test_the_published_kernels_and_ours_are_both_used(clone, wheel, tmp_path):
    published = download("kernels", tmp_path)
    for name, cwd in (("wheel", tmp_path), ("clone", clone), ("wheel_at_root", clone)):
        packages = [wheel] if name.startswith("wheel") else []
        folder = tmp_path / name / "venv"
        made = with_pip(folder, *packages) if packages else dependencies_alone(folder)
        with zipfile.ZipFile(published) as archive:
            archive.extractall(made.site)
        done = made.run("-c", USE_KERNELS, cwd=cwd)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        assert done.stdout.startswith(str(made.site / "kernels"))
        boards = ["revise", "--checkpoint", "sudoku", "--max-steps", "1", "0" * 81]
        done = made.run("-m", "remask.infra.cli", *boards, cwd=cwd)
        assert done.returncode == 0, f"{name}: {done.stderr}"
