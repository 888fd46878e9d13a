"""One server for the tests that only ask."""

import pytest

from tests.infra.demo.servers import open_small, run_server
from tests.text_folders import write_llada


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    return write_llada(tmp_path_factory.mktemp("demo") / "letters")


@pytest.fixture(scope="session")
def running(text_folder):
    with run_server(open_small(text_folder)) as running:
        yield running
