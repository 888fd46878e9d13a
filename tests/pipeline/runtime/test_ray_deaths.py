"""Ray's own processes killed, while it starts and while it works."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.pipeline.runtime.test_jobs import RECIPE, count_files
from tests.places import ROOT

ACTORS = """
import sys
from remask.pipeline.runtime.jobs import JobError, run_actors

def make():
    import time
    return lambda unit: time.sleep(0.1)

try:
    for _ in run_actors(make, range(10_000), workers=2):
        print("a unit is done", flush=True)
except JobError as error:
    sys.exit(f"{error}")
"""


def start(*command, **environment):
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def kill_child(driver, name, but=frozenset()):
    """Kill the driver's process of this name as soon as there is one, and return its id."""
    while driver.poll() is None:
        for child in psutil.Process(driver.pid).children():
            if child.pid not in but and child.name() == name:
                child.kill()
                return child.pid
        time.sleep(0.005)
    raise AssertionError(f"ended without a {name}: {driver.communicate()}")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("gcs_server", "Ray's control service (gcs_server)"),
        pytest.param("raylet", "Ray's scheduler (raylet)", marks=pytest.mark.slow),
    ],
)
def test_a_death_at_work_ends_the_job_with_one_line(tmp_path, name, what):
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "data"))
    job = ("-m", "remask.pipeline.build", tmp_path / "recipe.yaml")
    driver = start(*job, "run.workers=2")
    while count_files(tmp_path / "data", "examples") < 5 and driver.poll() is None:
        time.sleep(0.002)
    kill_child(driver, name)
    _, stderr = driver.communicate()
    assert driver.returncode == 1
    assert f"remask build: {what} ended with status -9" in stderr
    assert stderr.endswith("; run it again to continue\n")
    assert "Traceback" not in stderr
    again = start(*job, "run.workers=0")
    again.communicate()
    assert again.returncode == 0


@pytest.mark.slow
def test_actors_end_with_their_control_service(tmp_path):
    driver = start("-c", ACTORS)
    assert "done" in driver.stdout.readline()
    kill_child(driver, "gcs_server")
    _, stderr = driver.communicate()
    assert driver.returncode == 1
    assert stderr.startswith("Ray's control service (gcs_server) ended with status -9")
    assert stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 2])
def test_a_death_at_the_start_is_tried_again_once(tmp_path, kills):
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(output=tmp_path / "data"))
    driver = start("-m", "remask.pipeline.build", tmp_path / "recipe.yaml", "run.workers=2")
    killed = set()
    for _ in range(kills):
        killed.add(kill_child(driver, "raylet", killed))
    _, stderr = driver.communicate()
    assert "Traceback" not in stderr
    if kills == 1:
        assert driver.returncode == 0, stderr
    else:
        assert driver.returncode == 1
        assert stderr.startswith("remask build: Ray did not start: ")
        assert stderr.endswith("; run it again to continue\n")
