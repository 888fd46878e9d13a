"""An S3 server on this machine, and a small recipe."""

import socket

import fsspec
import pytest

from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.runtime import retries
from remask.pipeline.runtime.storage import Storage
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.trajectory import TrajectoryConfig
from tests.pipeline.faults import FaultyFileSystem


@pytest.fixture(scope="session")
def s3_server():
    from moto.server import ThreadedMotoServer

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server, monkeypatch, tmp_path):
    """An empty bucket; s3fs finds the server by the environment, as users' jobs do."""
    import s3fs

    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server,
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{abs(hash(str(tmp_path))) % 10**9}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}"


@pytest.fixture(params=["local", "memory", "s3"])
def storage(request, tmp_path):
    if request.param == "local":
        return Storage(str(tmp_path / "data"))
    if request.param == "memory":
        return Storage(f"memory://{tmp_path}")
    return Storage(request.getfixturevalue("bucket") + "/data")


@pytest.fixture
def faulty(monkeypatch):
    """The URI of an empty storage that fails when `FaultyFileSystem.fault` says so."""
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(FaultyFileSystem, "store", {})
    monkeypatch.setattr(retries.Retries, "count", 0)
    return "faulty:///data"


@pytest.fixture
def toy(tmp_path):
    """A recipe that builds in a moment: recipe(output=..., seed=...)."""

    def recipe(**changes):
        settings = {
            "output": str(tmp_path / "data"),
            "source": SudokuSource(side=4, train=150, held_out=40),
            "trajectories": TrajectoryConfig(noisy_count=(0, 8), doubt_share=0.2),
            "examples_per_shard": 40,
            "replicas": 2,
        }
        return BuildRecipe(**(settings | changes))

    return recipe
