"""The wheel, built once."""

import pytest

from tests.infra.installs import build_wheel, copy_clone


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return build_wheel(copy_clone(tmp_path_factory.mktemp("wheel") / "clone"))
