"""The package beside others: a pure wheel, and transformers imports as if we were not there."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

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


CARRIED = {
    *(".py", ".yaml"),
    *(".cpp", ".cu", ".h"),  # kernels
    *(".css", ".html", ".j2", ".js"),  # the report and the demo
    ".svg",  # the demo
    *(".json", ".safetensors"),  # the packaged model
}


def test_the_wheel_is_pure_and_carries_modules_recipes_kernels_report_and_model(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*.*")]
    files = [x for x in files if ROOT / "infra/docs" not in x.parents]  # built in a clone
    needed = {f"remask/{x.relative_to(ROOT)}" for x in files if x.suffix in CARRIED}
    assert {Path(x).suffix for x in needed} >= CARRIED - {".j2"}
    needed.add("remask/py.typed")
    pictures = (ROOT / "infra/demo").rglob("*.png")
    needed |= {f"remask/{x.relative_to(ROOT)}" for x in pictures}
    assert not needed - names, "add them to packages or package-data in pyproject.toml"


def test_an_installed_package_comes_before_a_folder_of_the_clone(tmp_path, monkeypatch):
    """But a folder of data does not, nor is a module inside another package touched."""
    (tmp_path / "kernels").mkdir()
    monkeypatch.delitem(sys.modules, "kernels", raising=False)  # transformers may have imported it
    monkeypatch.setattr(sys, "path", [str(ROOT), str(tmp_path)])
    assert importlib.util.find_spec("kernels").origin == str(ROOT / "kernels/__init__.py")
    (tmp_path / "kernels" / "__init__.py").touch()
    importlib.invalidate_caches()
    origin = str(tmp_path / "kernels/__init__.py")
    assert importlib.util.find_spec("kernels").origin == origin
    inside = importlib.util.find_spec("remask.kernels")
    assert inside.origin == str(ROOT / "kernels/__init__.py")


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
