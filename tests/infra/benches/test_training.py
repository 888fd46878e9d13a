"""The benchmark command runs and prints what it promises; no time is asserted."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_bench_prints_ratios_of_trainer_history_and_loader():
    done = subprocess.run(
        [sys.executable, "-m", "remask.infra.benches.training", "--quick"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line in (
        "trainer, sudoku, 0.81M (0.81M parameters, batch 64): ",
        "trainer, text-shaped, 20M (20.45M parameters, batch 8): ",
        " of a bare PyTorch loop",
        "  history: ",
        "loader: ",
        " times what the trainer takes",
    ):
        assert line in done.stdout
