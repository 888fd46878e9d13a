"""Notebooks: sound as they are shipped, and run from the first cell to the last at small size."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.places import ROOT

NOTEBOOKS = sorted((ROOT / "infra/notebooks").glob("*.ipynb"))
SMALL = "BASE_STEPS, ROUND_STEPS, ROUNDS = 4, 2, 2"


def read(path):
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_shipped_without_outputs(path):
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
            ast.parse(cell.source)


@pytest.mark.slow
def test_own_text_runs_from_data_to_a_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    notebook = read(ROOT / "infra/notebooks/own_text.ipynb")
    sizes = next(x for x in notebook.cells if x.source.startswith("BASE_STEPS"))
    sizes.source = SMALL
    made = next(x for x in notebook.cells if "pairs[:4000]" in x.source)
    made.source = made.source.replace("[:4000]", "[:200]")
    client = NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    printed = {i: "".join(x.get("text", "") for x in cell.outputs) for i, cell in code(notebook)}
    assert "stages:" in "".join(printed.values())
    assert re.search(r"0 \d\d \+ \d\d =⏎", "".join(printed.values()))
    drafted = next(x for x in notebook.cells if x.source.endswith('draft="75")'))
    lines = "".join(x.get("text", "") for x in drafted.outputs).splitlines()
    assert lines[0] == "33 + 65 = 75∎∎"
    (result,) = [x for x in drafted.outputs if x.output_type == "execute_result"]
    assert isinstance(ast.literal_eval(result.data["text/plain"]), str)
    assert Path(tmp_path, "runs/sums/eval/report.html").is_file()


def code(notebook):
    return [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
