"""How ranks share the writing of the finished model."""

from types import SimpleNamespace

import pytest

from remask.models import create
from remask.training.run import saving
from remask.training.run.folder import RunFolder
from tests.training.runs import MODEL


@pytest.mark.parametrize("is_first", [True, False])
def test_only_the_first_rank_sweeps_the_folder_of_the_model(tmp_path, monkeypatch, is_first):
    """To another rank, a model that the first one is writing looks like one that was left behind;
    removing it would leave an empty OUTPUT/model."""
    monkeypatch.setattr(saving.Saver, "_write_model", lambda *_: None)
    half_written = tmp_path / ".model.0123abcd" / "model.safetensors"
    half_written.parent.mkdir()
    half_written.touch()
    world = SimpleNamespace(is_first=is_first, wait=lambda: None)
    saver = saving.Saver(None, create(MODEL), None, RunFolder(tmp_path), world)
    saver.export(None, None)
    assert half_written.exists() == (not is_first)
