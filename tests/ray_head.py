"""A real Ray head on this machine, and jobs submitted to it as the README says."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADDRESS = "http://127.0.0.1:8265"


@contextlib.contextmanager
def ray_head() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Start a head of two cores; yields a function that submits a job and waits for it."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",  # a head asks for a token; the client must be told to send it
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
    }
    ray = str(bin_folder / "ray")
    head = [ray, "start", "--head", "--node-ip-address=127.0.0.1", "--num-cpus=2"]
    subprocess.run([*head, "--dashboard-host=127.0.0.1"], env=environment, check=True)

    def submit(*job: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                ray,
                "job",
                "submit",
                "--address=http://127.0.0.1:8265",
                "--working-dir=.",
                "--",
                *job,
            ],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )

    try:
        yield submit
    finally:
        subprocess.run([ray, "stop", "--force"], env=environment, check=True)
