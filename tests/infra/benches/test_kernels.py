"""The benchmark command runs and prints what it promises; no time is asserted."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("cpu_library")


def bench(*arguments):
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "remask.infra.benches.kernels",
            "--only",
            "64,81,128",
            "--repeats",
            "1",
            *arguments,
        ],
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_bench_prints_ratios_memory_bandwidth_horizons_and_segments():
    done = bench()
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ +64, 81, 128 .*$", done.stdout, re.MULTILINE)
    # step, forward, forward + backward, horizons, segments forward, segments forward + backward
    assert len(rows) == 6
    assert all("x" in row for row in rows)
    assert "memory bandwidth" in done.stdout
    assert "T = 512" in done.stdout
    assert "S = 8, 3 used" in done.stdout


def test_bench_compares_with_another_revision():
    done = bench("--against", "HEAD")
    if "not a git repository" in done.stderr:
        pytest.skip("the sources are no git checkout")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ +64, 81, 128 +(forward.*?)  .* (\d+\.\d+)$", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["forward", "forward + backward"]
    assert all(float(ratio) > 0 for _, ratio in rows)


def test_a_revision_that_does_not_exist_is_named():
    done = bench("--against", "no-such-revision")
    assert done.returncode == 2
    assert "git has no kernels at revision 'no-such-revision'" in done.stderr
    assert "Traceback" not in done.stderr
