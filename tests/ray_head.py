"""A real Ray head on this machine, and jobs submitted to it as the README says."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True)
class Head:
    """A cluster of one node, which ends with the process that started it."""

    process: subprocess.Popen[str]
    address: str
    """Where drivers join: RAY_ADDRESS."""
    dashboard: str
    """Where jobs are submitted."""
    environment: dict[str, str]
    """What a client needs to be let in."""

    def run(self, *module: str) -> subprocess.CompletedProcess[str]:
        """`python -m MODULE ...` as a driver of this cluster."""
        return subprocess.run(
            [sys.executable, "-m", *module],
            cwd=ROOT,
            env=self.environment | {"RAY_ADDRESS": self.address},
            capture_output=True,
            text=True,
        )

    def submit(self, *job: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Submit a job with a folder and wait for its end."""
        return subprocess.run(
            [RAY, "job", "submit", f"--address={self.dashboard}", "--working-dir=.", "--", *job],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
        )


@contextlib.contextmanager
def ray_head(python: str | Path = sys.executable) -> Iterator[Head]:
    """Start a head of two cores that asks for a token of its own.

    Ports and temporary folder are its own too, so that it stands beside any other Ray. Its workers
    run in the environment of `python`.
    """
    gcs, dashboard, client, agent = free_ports(4)
    environment = os.environ | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
    }
    # Sockets below it have names of at most 107 characters, which pytest's own folders exceed.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [
                python, RAY, "start", "--head", "--block", "--num-cpus=2", f"--temp-dir={folder}",
                "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1",
                f"--port={gcs}", f"--dashboard-port={dashboard}",
                f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}",
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            wait_until_started(process)
            yield Head(process, f"127.0.0.1:{gcs}", f"http://127.0.0.1:{dashboard}", environment)
        finally:
            end(process)


def wait_until_started(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "--block" in line:  # the last that it says
            return
    raise RuntimeError(f"the head did not start: {''.join(lines)}")


def end(process: subprocess.Popen[str]) -> None:
    """End a head, and whatever it has started, by its own handle."""
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        assert process.stdout is not None
        process.stdout.close()


def free_ports(count: int) -> list[int]:
    """So many ports that nobody on this machine listens on now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
