"""The benchmark command runs and prints what it promises; no time is asserted."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_bench_prints_ratios_of_decoding():
    done = subprocess.run(
        [sys.executable, "-m", "remask.infra.benches.evaluation", "--no-ray"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for line in (
        "decoding: ",
        "  against all boards until the last is done: ",
        "  share of the bare forward passes' speed: ",
    ):
        assert line in done.stdout


def test_a_folder_without_a_model_is_refused(tmp_path, capsys):
    from remask.infra.benches.evaluation import main

    with pytest.raises(SystemExit, match="2"):
        main(["--checkpoint", str(tmp_path)])
    assert "lacks config.json" in capsys.readouterr().err
