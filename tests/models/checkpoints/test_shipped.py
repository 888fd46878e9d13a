"""The checkpoints that come with the package."""

import os

import pytest

from remask.models import CheckpointError, fingerprint, load
from remask.models.checkpoints.checkpoint import outline
from remask.models.checkpoints.shipped import SHIPPED, is_shipped


def test_the_sudoku_model_loads_by_name_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = load("sudoku")
    assert model.config.side == 9
    assert sum(x.numel() for x in model.parameters()) <= 830_000
    assert fingerprint("sudoku") == fingerprint(SHIPPED / "sudoku")
    assert outline("sudoku").config == model.config


@pytest.mark.parametrize(("name", "recipe"), [("sudoku", "sudoku9"), ("sums", "sums_shipped")])
def test_a_model_is_small_and_says_how_it_was_made(name, recipe):
    folder = SHIPPED / name
    assert sum(x.stat().st_size for x in folder.iterdir()) <= 6_000_000
    assert f"remask run infra/recipes/{recipe}.yaml" in (folder / "README.md").read_text()


def test_a_folder_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("sudoku")
    assert not is_shipped("sudoku")
    with pytest.raises(CheckpointError, match="sudoku lacks config.json"):
        load("sudoku")


def test_other_names_are_told_what_there_is():
    with pytest.raises(
        CheckpointError, match=r"no checkpoint folder at chess; .* \['sudoku', 'sums'\]"
    ):
        load("chess")
    assert not is_shipped("")
    assert not is_shipped("../sudoku")
