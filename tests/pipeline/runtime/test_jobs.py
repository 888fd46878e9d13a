"""The jobs on real Ray: any number of workers, and every kind of death."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from remask.pipeline import build
from remask.pipeline.recipe import ProposalConfig, RunConfig
from remask.pipeline.runtime.jobs import actors_that_fit, ray_session, run_actors, run_tasks
from tests.pipeline.test_build import checkpoint, files  # noqa: F401
from tests.places import ROOT
from tests.ray_head import ray_head

RECIPE = """
output: {output}
source: {{kind: sudoku, side: 9, train: 1500, held_out: 60, images: 8}}
trajectories: {{noisy_count: [4, 20]}}
examples_per_shard: 50
replicas: 2
"""


@pytest.fixture(scope="module")
def ray_here():
    """One local Ray for the tests of this file that do not need their own."""
    with ray_session(2):
        yield


def shards_of(folder):
    return {name: data for name, data in files(folder).items() if not name.endswith(".json")}


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_any_number_of_workers_gives_the_same_bytes(toy, tmp_path, workers):
    build.run(toy(run=RunConfig(workers=0), output=str(tmp_path / "alone")))
    build.run(toy(run=RunConfig(workers=workers), output=str(tmp_path / "many")))
    assert shards_of(tmp_path / "many") == shards_of(tmp_path / "alone")


@pytest.mark.usefixtures("ray_here")
def test_probing_actors_give_the_same_bytes(toy, tmp_path, checkpoint):  # noqa: F811
    proposal = ProposalConfig(kind="top_k", backbone=checkpoint, k=2, mode="masked")
    for name, workers in (("alone", 0), ("many", 2)):
        build.run(
            toy(run=RunConfig(workers=workers), output=str(tmp_path / name), proposal=proposal)
        )
    assert shards_of(tmp_path / "many") == shards_of(tmp_path / "alone")


def die_once(folder, unit):
    """Kill the worker the first time it meets unit 3."""
    mark = Path(folder) / "died"
    if unit == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return unit * unit


class DyingActor:
    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        return lambda unit: die_once(self.folder, unit)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize("kind", ["task", "actor"])
def test_a_killed_worker_is_replaced(tmp_path, kind):
    folder = str(tmp_path)
    if kind == "task":
        results = run_tasks(lambda unit: die_once(folder, unit), range(8), workers=2)
    else:
        results = run_actors(DyingActor(folder), range(8), workers=2)
    assert sorted(results) == [n * n for n in range(8)]
    assert (tmp_path / "died").exists()


@pytest.mark.usefixtures("ray_here")
def test_more_workers_than_the_cluster_holds_do_not_hang():
    results = run_actors(lambda: lambda unit: unit, range(6), workers=50)
    assert sorted(results) == list(range(6))


def test_actors_are_as_many_as_their_resources_allow():
    assert actors_that_fit({"CPU": 8, "GPU": 2}, 1) == 2
    assert actors_that_fit({"CPU": 8, "GPU": 2}, 0.5) == 4
    assert actors_that_fit({"CPU": 3}, 0) == 3
    with pytest.raises(ValueError, match="has 8 cores and 0 GPUs, a worker needs 1 and 1"):
        actors_that_fit({"CPU": 8}, 1)


def load_nothing():
    raise ValueError("the checkpoint is damaged")


@pytest.mark.usefixtures("ray_here")
def test_errors_while_a_worker_starts_come_through_too():
    with pytest.raises(ValueError, match="^the checkpoint is damaged$"):
        list(run_actors(load_nothing, range(3), workers=2))


def fail_at_two(unit):
    if unit == 2:
        raise ValueError("unit 2 is bad")
    return unit


@pytest.mark.usefixtures("ray_here")
def test_our_own_errors_come_through_as_they_are():
    with pytest.raises(ValueError, match="^unit 2 is bad$"):
        list(run_tasks(fail_at_two, range(50), workers=2))


@pytest.mark.usefixtures("ray_here")
def test_only_a_few_units_are_under_way(tmp_path):
    """A consumer that stops to look finds no more started than twice the workers."""

    def touch(unit):
        (tmp_path / str(unit)).touch()
        return unit

    results = run_tasks(touch, range(100), workers=2)
    next(results)
    time.sleep(1)
    assert len(list(tmp_path.iterdir())) <= 5
    assert len(list(results)) == 99


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The data set of an undisturbed run."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "recipe.yaml").write_text(RECIPE.format(output=folder / "data"))
    done = command(folder / "recipe.yaml", "run.workers=0")
    _, stderr = done.communicate()
    assert done.returncode == 0, stderr
    return shards_of(folder / "data")


def command(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "remask.pipeline.build", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def count_files(folder, *names):
    """How far a build has come: files in these folders of its output."""
    return sum(len(list((folder / name).rglob("*-*"))) for name in names)


@pytest.mark.parametrize(("stage", "files_made"), [("examples", 9), ("rows", 30)])
def test_a_killed_driver_is_made_up_for(calm, tmp_path, stage, files_made):
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "data"))
    driver = command(tmp_path / "recipe.yaml", "run.workers=2")
    while count_files(tmp_path / "data", stage) < files_made and driver.poll() is None:
        time.sleep(0.002)
    assert driver.poll() is None, "it must be killed at work"
    driver.kill()
    driver.communicate()
    again = command(tmp_path / "recipe.yaml", "run.workers=0")
    _, stderr = again.communicate()
    assert again.returncode == 0, stderr
    assert shards_of(tmp_path / "data") == calm


def workers_of(mark):
    """Process ids of the Ray workers that inherited our mark in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = (folder / "cmdline").read_bytes().startswith((b"ray::_call", b"ray::IDLE"))
            if is_worker and mark.encode() in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            continue  # it has just ended, or is not ours


def test_workers_killed_during_a_build_are_made_up_for(calm, tmp_path):
    mark = f"REMASK_TEST_MARK={tmp_path.name}-{os.getpid()}"
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "data"))
    name, _, value = mark.partition("=")
    driver = command(tmp_path / "recipe.yaml", "run.workers=2", **{name: value})
    chance, kills = random.Random(0), 0
    while driver.poll() is None:  # by what is done, not by seconds: some machines are fast
        is_due = count_files(tmp_path / "data", "examples", "rows") > 15 * kills
        if is_due and (pids := list(workers_of(mark))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(pids), signal.SIGKILL)
                kills += 1
        time.sleep(0.005)
    _, stderr = driver.communicate()
    assert driver.returncode == 0, stderr
    assert kills > 0
    assert shards_of(tmp_path / "data") == calm


@pytest.mark.slow
def test_a_lost_node_is_made_up_for(calm, tmp_path):
    """Two nodes on this machine; the second is taken away while it works."""
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized(), "run this test in a process of its own: -m slow"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "data"))
        driver = command(tmp_path / "recipe.yaml", RAY_ADDRESS=cluster.address)
        rows = tmp_path / "data" / "rows"
        while not (rows.exists() and any(rows.iterdir())) and driver.poll() is None:
            time.sleep(0.02)
        cluster.remove_node(second, allow_graceful=False)
        _, stderr = driver.communicate(timeout=240)
        assert driver.returncode == 0, stderr
        assert shards_of(tmp_path / "data") == calm
    finally:
        cluster.shutdown()


def wait_for_the_mark(mark):
    """A worker that says where it runs, and works for a moment."""
    node = ray_node()

    def work(unit):
        (mark / f"{unit}-{node}").touch()
        time.sleep(0.5)
        return unit

    return work


def ray_node():
    import ray

    return ray.get_runtime_context().get_node_id()


@pytest.mark.slow
def test_an_actor_that_lost_its_node_goes_on_where_another_is_done(tmp_path):
    """Two nodes of one core each: what the lost one had is done on the other's core."""
    import ray
    from ray.cluster_utils import Cluster

    assert not ray.is_initialized(), "run this test in a process of its own: -m slow"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, log_to_driver=False)
        results = run_actors(partial(wait_for_the_mark, tmp_path), range(8), workers=2)
        done = [next(results)]
        while not list(tmp_path.glob(f"*-{second.node_id}")):
            time.sleep(0.05)
        cluster.remove_node(second, allow_graceful=False)
        assert sorted(done + list(results)) == list(range(8))
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
def test_a_submitted_job_runs_as_the_readme_says(tmp_path):
    """`ray job submit --working-dir . -- python -m remask.pipeline.build RECIPE`, a real head."""
    recipe = ROOT / "pipeline" / "recipes" / "sudoku4.yaml"
    with ray_head() as head:
        job = ["python", "-m", "remask.pipeline.build", str(recipe.relative_to(ROOT))]
        done = head.submit(*job, f"output={tmp_path}/data")
    assert done.returncode == 0, done.stdout + done.stderr
    here = command(recipe, f"output={tmp_path}/here", "run.workers=0")
    here.communicate()
    assert shards_of(tmp_path / "data") == shards_of(tmp_path / "here")


def test_dry_run_prints_the_plan_and_makes_nothing(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "data"))
    done = command(tmp_path / "recipe.yaml", "--dry-run", "seed=9")
    stdout, _ = done.communicate()
    assert "seed: 9" in stdout
    assert "# build: 62 units" in stdout
    assert not (tmp_path / "data").exists()


def test_wrong_requests_exit_with_2_and_failures_with_1(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "file" / "data"))
    (tmp_path / "file").write_text("")
    for arguments, status, message in (
        (["nowhere.yaml"], 2, "remask build: cannot read recipe nowhere.yaml: No such file"),
        ([tmp_path / "recipe.yaml", "sead=1"], 2, "unknown keys ['sead']"),
        ([tmp_path / "recipe.yaml", "run.workers=0"], 1, "remask build: cannot list"),
    ):
        done = command(*arguments)
        _, stderr = done.communicate()
        assert done.returncode == status, stderr
        assert message in stderr
        assert "Traceback" not in stderr
