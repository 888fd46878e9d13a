"""The benchmark command runs and prints what it promises; no time is asserted."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_bench_prints_speed_size_and_share():
    done = subprocess.run(
        [sys.executable, "-m", "remask.infra.benches.pipeline", "--no-ray"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for words in ("million positions/s", "with all states written out", "T = 64: memory", "probe:"):
        assert words in done.stdout
