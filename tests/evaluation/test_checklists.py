"""The checklist of evaluation/README.md: its toy suite is added, evaluated and reported."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest
import torch

from remask.evaluation import registry, suites
from remask.evaluation.registry import SUITES, find_suite, make_suite
from remask.infra.cli import main
from remask.models import HistoryConfig, SudokuConfig, SudokuMDM, save
from tests.places import ROOT

README = (ROOT / "evaluation" / "README.md").read_text()
LINE = '"toy": "remask.evaluation.suites.toy:ToySuite",'
"""The line of registry.py that the checklist asks for."""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Adds the checklist's suite: its file, beside the other suites, and its line."""
    code = README.partition("## To add a suite")[2].partition("```python\n")[2].partition("```")[0]
    (tmp_path / "toy.py").write_text(code)
    monkeypatch.setattr(suites, "__path__", [*suites.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{suites.__name__}.toy", raising=False)
    assert LINE in README
    for kind, place in json.loads(f"{{{LINE.rstrip(',')}}}").items():
        monkeypatch.setitem(registry.SUITES, kind, place)


@pytest.fixture
def recipe(tmp_path):
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=16)
    save(SudokuMDM(config, HistoryConfig(decay=0.5)), tmp_path / "model")
    path = tmp_path / "toy.yaml"
    path.write_text(
        f"output: {tmp_path}/eval\n"
        "suites: {boards: {kind: toy}, alone: {kind: toy, preset: single}}\n"
        f"checkpoints: {{rm: {tmp_path}/model}}\n"
        "decoders: {rm: {max_steps: 4}}\n"
        "run: {workers: 0}\n"
    )
    return path


@pytest.mark.usefixtures("toy")
def test_the_suite_of_the_checklist_is_evaluated_and_reported(recipe, tmp_path, capsys):
    main(["eval", str(recipe)])
    scores = pl.read_parquet(tmp_path / "eval" / "scores.parquet")
    counts = scores.filter(pl.col("metric") == "first_right").select("suite", "count")
    assert dict(counts.iter_rows()) == {"boards": 3, "alone": 1}
    assert "first right" in capsys.readouterr().out
    main(["report", f"{tmp_path}/eval"])
    page = Path(tmp_path, "eval", "report.html").read_text()
    assert "<dd>boards whose first cell is right in the end</dd>" in page
    data = page.partition('id="showcase">')[2].partition("</script>")[0]
    samples = {(run["group"], run["name"]): run["samples"] for run in json.loads(data)}
    assert list(samples) == [("boards", "rm"), ("alone", "rm")]
    assert samples["boards", "rm"][0]["sample_id"] == "toy-0"
    assert samples["boards", "rm"][0]["states"][0][:4] == [2, 2, 3, 4]


@pytest.mark.usefixtures("toy")
def test_the_suite_of_the_checklist_checks_its_settings():
    with pytest.raises(ValueError, match=r"suites: x: samples must lie in \[1, 3\], got 9"):
        make_suite({"kind": "toy", "samples": 9}, "suites: x")
    with pytest.raises(ValueError, match=r"preset must be one of \['single'\], got 'paper'"):
        make_suite({"kind": "toy", "preset": "paper"}, "suites: x")


def test_every_suite_is_registered_by_its_own_kind_and_has_a_glossary():
    for kind in SUITES:
        suite = find_suite(kind)
        assert suite is not None
        assert suite.kind == kind
        assert "forward_passes" in suite.glossary


def test_an_unknown_suite_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"x: kind must be one of \['arc', .*got 'chess'"):
        make_suite({"kind": "chess"}, "x")


def test_the_readme_names_files_that_exist():
    named = {
        word
        for line in README.partition("## Suites")[0].splitlines()
        if line.startswith("|")
        for word in line.replace("`", " ").replace(",", " ").split()
        if word.endswith((".py", "/")) and "*" not in word
    }
    assert len(named) > 20
    assert [x for x in sorted(named) if not (ROOT / "evaluation" / x).exists()] == []
