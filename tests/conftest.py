"""What all tests share: property tests that repeat themselves, no network, a hub on this machine
for those that ask for one, and a browser."""

import os
import shutil

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"

# The same examples in every run: a failure in one place is a failure everywhere.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    """Chromium, without a window."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        yield started
        started.close()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub without repositories that this process uses, and an empty cache."""
    from remask.models.checkpoints import hub as hub_module
    from tests.hub_server import HubServer

    monkeypatch.setattr(hub_module, "_resolved", {})
    with HubServer().running() as server:
        server.use(monkeypatch, tmp_path / "home")
        yield server
