"""One recipe per output and one build at a time, whatever the storage does."""

import errno
import random
import threading

import pytest

from remask.pipeline import build, open_manifest
from remask.pipeline.plan import make_plan
from remask.pipeline.recipe import RunConfig
from remask.pipeline.runtime.lease import held
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.storage import Storage, StorageError
from tests.pipeline.faults import FaultyFileSystem
from tests.pipeline.test_build import files

HERE = RunConfig(workers=0)


@pytest.fixture
def flaky(faulty, monkeypatch):
    """The URI of a storage in which one operation in ten fails."""
    chance = random.Random(0)

    def fault():
        return OSError(errno.EIO, "broken") if chance.random() < 0.1 else None

    monkeypatch.setattr(FaultyFileSystem, "fault", staticmethod(fault))
    return faulty


def test_a_build_is_finished_though_one_operation_in_ten_fails(toy, tmp_path, flaky):
    small = {"run": HERE, "examples_per_shard": 15}  # 23 shards
    build.run(toy(output=str(tmp_path / "calm"), **small))
    summary = build.run(toy(output=flaky, **small))
    assert summary.units == 23
    assert summary.retries > 10
    assert f"{summary.retries:,} storage faults retried" in str(summary)
    store = FaultyFileSystem.store
    written = {path.split("/data/")[1]: file.getvalue() for path, file in store.items()}
    assert written == files(tmp_path / "calm")


def test_no_fault_lets_a_foreign_recipe_in(toy, flaky):
    build.run(toy(output=flaky, run=HERE))
    for _ in range(30):
        with pytest.raises(ValueError, match="was made by another recipe"):
            build.run(toy(output=flaky, run=HERE, seed=1))


@pytest.mark.parametrize("where", ["local", "memory", "s3"])
def test_two_recipes_at_one_moment_never_mix(toy, tmp_path, where, request):
    root = {"local": str(tmp_path), "memory": f"memory://{tmp_path}"}.get(where)
    root = root or request.getfixturevalue("bucket")
    for trial in range(6):
        output, gate = f"{root}/trial-{trial}", threading.Barrier(2)
        ends: dict[int, object] = {}

        def attempt(seed, gate=gate, ends=ends, output=output):
            recipe = toy(output=output, run=HERE, seed=seed)
            gate.wait()
            try:
                ends[seed] = build.run(recipe)
            except (ValueError, StorageError) as error:
                ends[seed] = error

        threads = [threading.Thread(target=attempt, args=[seed]) for seed in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [seed for seed, end in ends.items() if not isinstance(end, Exception)]
        assert len(winners) == 1, ends
        wanted = digest(make_plan(toy(seed=winners[0])).content)
        assert set(open_manifest(output).collect()["recipe"]) == {wanted}
        assert not [x for x in Storage(output).names("") if x.startswith("lease")]


def test_a_second_build_of_one_recipe_is_told_to_wait(toy, tmp_path):
    with (
        held(Storage(str(tmp_path / "data"))),
        pytest.raises(ValueError, match="is being written to by process .*; wait for it"),
    ):
        build.run(toy(run=HERE))
    build.run(toy(run=HERE))
