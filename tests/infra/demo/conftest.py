"""One server for the tests that only ask."""

import pytest

from remask.infra.demo.offers import open_offers
from tests.infra.demo.servers import run_server, write_shapes
from tests.text_folders import write_llada


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    return write_llada(tmp_path_factory.mktemp("demo") / "letters")


@pytest.fixture(scope="session")
def edit_folder(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="session")
def running(text_folder, edit_folder):
    """The packaged models, a text model and an image-edit model of random weights."""
    with run_server(open_offers({"letters": text_folder, "shapes": edit_folder})) as running:
        yield running
