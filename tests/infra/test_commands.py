"""The `remask` command as its users run it, with right and wrong input."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from infra.cli import VERBS, main
from models import SudokuConfig, SudokuMDM, save

BOARD = "1234341221434321"


def remask(*argv, stdin="", **environment):
    """A process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "infra.cli", *argv],
        input=stdin,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run") / "model"
    save(SudokuMDM(SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)), folder)
    return str(folder)


def test_help_lists_the_verbs_with_examples(capsys):
    main(["--help"])
    out = capsys.readouterr().out
    assert "remask doctor" in out
    assert "remask revise --checkpoint" in out
    for verb in VERBS:
        assert f"remask {verb}" in out
    for verb in VERBS:
        with pytest.raises(SystemExit, match="0"):
            main([verb, "--help"])
        assert f"remask {verb}" in capsys.readouterr().out


def test_unknown_verbs_are_named():
    done = remask("dream")
    assert done.returncode == 2
    assert done.stderr == f"remask: no verb 'dream'; there are {', '.join(VERBS)}\n"


@pytest.mark.parametrize("verb", ["source", "probe", "build"])
def test_a_missing_recipe_is_all_that_is_asked_for(verb, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([verb])
    assert capsys.readouterr().err.endswith("arguments are required: recipe\n")


def test_doctor_says_what_runs_and_why_not(tmp_path):
    good = remask("doctor", COLUMNS="200")
    assert good.returncode == 0
    assert "torch" in good.stdout
    bad = remask("doctor", CXX="no-such-compiler", REMASK_CACHE=str(tmp_path), COLUMNS="200")
    assert bad.returncode == 0
    assert "reference path, slower: no C++ compiler found (CXX=no-such-compiler)" in bad.stdout


def test_revise_prints_full_boards_only(checkpoint):
    blanks = "." * 16
    done = remask("revise", "--checkpoint", checkpoint, BOARD, blanks)
    assert done.returncode == 0, done.stderr
    boards = done.stdout.split()
    assert len(boards) == 2
    assert all(len(b) == 16 and set(b) <= set("1234") for b in boards)


def test_revise_reads_standard_input_and_leaves_fixed_cells(checkpoint):
    lines = f"{BOARD} {'0' * 16}\n\n{'0' * 8 + BOARD[8:]} {'1' * 8 + '0' * 8}\n"
    done = remask("revise", "--checkpoint", checkpoint, "--max-steps", "3", stdin=lines)
    first, second = done.stdout.split()
    assert first == BOARD
    assert second[8:] == BOARD[8:]


def test_show_draws_the_steps_on_stderr(checkpoint):
    done = remask("revise", "--checkpoint", checkpoint, "--show", "." * 16)
    assert "start" in done.stderr
    assert "step 1" in done.stderr
    assert len(done.stdout.split()) == 1


@pytest.mark.parametrize(
    ("argv", "stdin", "message"),
    [
        (["123"], "", "a board is 81 or 16 digits, 0 or . for a blank; got '123'"),
        (["1" * 81], "", "this checkpoint takes boards of 16 cells, got 81"),
        (["9" * 16], "", "a 4×4 board has digits 1 to 4; got 9"),
        ([f"{BOARD} 01"], "", "after a board come 16 0s and 1s or nothing, got '01'"),
        (["0" * 16 + " " + "0" * 16], "", "MASK may stand only where it is editable"),
        ([], "", "no boards given: pass them as arguments or on standard input"),
        (["--max-steps", "0", BOARD], "", "max_steps must be at least 1, got 0"),
        (["--patience", "0", BOARD], "", "patience must be at least 1 step, got 0"),
    ],
)
def test_bad_requests_get_one_clear_line(checkpoint, argv, stdin, message, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    with pytest.raises(SystemExit, match="2"):
        main(["revise", "--checkpoint", checkpoint, *argv])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_reader_that_leaves_early_is_no_error(checkpoint):
    boards = "\n".join([BOARD] * 3000)
    command = f"{sys.executable} -m infra.cli revise --checkpoint {checkpoint} --max-steps 1"
    done = subprocess.run(
        f"{command} | head -1",
        shell=True,
        input=boards,
        capture_output=True,
        text=True,
        env=os.environ | {"REMASK_KERNELS": "reference"},
    )
    assert len(done.stdout) == 17
    assert done.stderr == ""


def test_ctrl_c_ends_without_a_traceback(checkpoint):
    waiting = subprocess.Popen(
        [sys.executable, "-m", "infra.cli", "revise", "--checkpoint", checkpoint],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(8)  # until it waits for boards
    waiting.send_signal(signal.SIGINT)
    _, stderr = waiting.communicate(timeout=60)
    assert (waiting.returncode, stderr) == (130, "remask: stopped\n")


def test_a_missing_checkpoint_is_named(tmp_path):
    done = remask("revise", "--checkpoint", str(tmp_path / "nowhere"), BOARD)
    assert done.returncode == 2
    assert f"there is no checkpoint folder at {tmp_path}/nowhere" in done.stderr
    assert "Traceback" not in done.stderr
