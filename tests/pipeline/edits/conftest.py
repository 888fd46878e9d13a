"""A cache of its own for what `datasets` prepares."""

import pytest


@pytest.fixture
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
