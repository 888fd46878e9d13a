"""What all tests share: property tests that repeat themselves, no network, and a hub on this
machine for those that ask for one."""

import os

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"

# The same examples in every run: a failure in one place is a failure everywhere.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub without repositories that this process uses, and an empty cache."""
    from remask.models.checkpoints import hub as hub_module
    from tests.hub_server import HubServer

    monkeypatch.setattr(hub_module, "_resolved", {})
    with HubServer().running() as server:
        server.use(monkeypatch, tmp_path / "home")
        yield server
