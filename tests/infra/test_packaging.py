"""The package beside others: a pure wheel, and transformers imports as if we were not there."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from tests.places import ROOT

PACKAGES = ("evaluation", "infra", "kernels", "models", "pipeline", "training")

USE_TRANSFORMERS = """
import transformers
from transformers import BertConfig, BertForMaskedLM
import torch
config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                    intermediate_size=8)
print(BertForMaskedLM(config)(torch.tensor([[1, 2, 3]])).logits.shape)
from remask import kernels
print(kernels.__file__)
"""


def run_python(script, cwd, **environment):
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "."],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = source.glob("*.whl")
    return path


def test_transformers_imports_from_the_repository_root():
    out = run_python(USE_TRANSFORMERS, ROOT)
    assert "torch.Size([1, 3, 20])" in out
    assert str(ROOT / "kernels") in out


def test_transformers_imports_beside_the_installed_wheel(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    out = run_python(USE_TRANSFORMERS, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert "torch.Size([1, 3, 20])" in out
    assert str(tmp_path / "site" / "remask" / "kernels") in out


def test_the_wheel_is_pure_and_carries_kernel_sources_and_the_report(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for source in ("history.h", "history_cpu.cpp", "history_cuda.cu", "host_shim.h"):
        assert f"remask/kernels/csrc/{source}" in names
    for part in ("report.css", "page.html", "player.html", "player.js"):
        assert f"remask/evaluation/report/{part}" in names
    modules = [p.relative_to(ROOT) for name in PACKAGES for p in (ROOT / name).rglob("*.py")]
    missing = {f"remask/{module}" for module in modules} - set(names)
    assert not missing, "every module must be in the wheel"


def test_the_wheel_has_one_top_level_name(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {x.split("/")[0] for x in names if ".dist-info/" not in x} == {"remask"}


def test_the_build_asks_for_no_torch():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert not any("torch" in need for need in settings["build-system"]["requires"])


def test_every_dependency_has_a_reason():
    text = (ROOT / "pyproject.toml").read_text()
    needs = re.findall(r'^    "([\w-]+)[\[>=].*$', text, re.MULTILINE)
    explained = re.findall(r'^    "([\w-]+)[\[>=][^#\n]*# \w+', text, re.MULTILINE)
    assert needs == explained
    assert "torch" in needs


def rooms_imported(text):
    """The rooms that a module imports from."""
    lines = re.findall(r"^\s*(?:from|import) (remask\b.*)$", text, re.MULTILINE)
    dotted = {x for line in lines for x in re.findall(r"remask\.(\w+)", line)}
    named = {x for line in lines for x in re.findall(r"^remask import (.*)$", line)}
    return dotted | ({x for names in named for x in re.findall(r"\w+", names)} & set(PACKAGES))


def test_imports_are_absolute_and_by_the_one_name():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            first = re.findall(r"^\s*(?:from|import) (\.|\w+)", path.read_text(), re.MULTILINE)
            assert not {".", *PACKAGES} & set(first), path


def test_imports_flow_one_way():
    order = ["kernels", "models", "pipeline"]
    allowed = {name: set(order[: i + 1]) for i, name in enumerate(order)}
    allowed["training"] = {*order, "training"}
    allowed["evaluation"] = {*order, "evaluation"}
    for package, may in allowed.items():
        for path in (ROOT / package).rglob("*.py"):
            imported = rooms_imported(path.read_text())
            assert imported <= may, path
