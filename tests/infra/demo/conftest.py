"""One server for the tests that only ask."""

from pathlib import Path

import pytest
from PIL import Image

from remask.infra.demo.offers import open_offers
from tests.infra.demo.servers import run_server
from tests.revisers import write_edits
from tests.text_folders import write_llada


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    return write_llada(tmp_path_factory.mktemp("demo") / "letters")


@pytest.fixture(scope="session")
def edit_folder(tmp_path_factory):
    """An image-edit model for pictures of shapes, with a large picture of one beside it."""
    folder, _, pairs = write_edits(tmp_path_factory.mktemp("shapes"))
    Image.fromarray(pairs[0].source).resize((900, 700)).save(Path(folder).with_name("large.png"))
    return folder


@pytest.fixture(scope="session")
def running(text_folder, edit_folder):
    """The packaged models, a text model and an image-edit model of random weights."""
    with run_server(open_offers({"letters": text_folder, "shapes": edit_folder})) as running:
        yield running
