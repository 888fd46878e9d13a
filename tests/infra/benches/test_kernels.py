"""The benchmark command runs and prints what it promises; no time is asserted."""

import re
import subprocess
import sys

import pytest


@pytest.mark.usefixtures("cpu_library")
@pytest.mark.slow
def test_bench_prints_ratios_memory_bandwidth_and_horizons():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "remask.infra.benches.kernels",
            "--only",
            "64,81,128",
            "--repeats",
            "1",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ +64, 81, 128 .*$", done.stdout, re.MULTILINE)
    assert len(rows) == 4  # step, forward, forward + backward, horizons
    assert all("x" in row for row in rows)
    assert "memory bandwidth" in done.stdout
    assert "T = 512" in done.stdout
