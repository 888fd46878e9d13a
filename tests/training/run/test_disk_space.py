"""A disk that fills up while a run saves: one line says so, and the run resumes."""

import subprocess

import pytest

from remask.training.run.folder import RunFolder
from tests.training.runs import finish, losses, run_ranks, start_ranks, write_recipe

WEIGHTS = "model/model.safetensors"
ROOM = 100_000
"""For the log, the recipe and the like."""


@pytest.fixture
def small_disk(tmp_path):
    """A function that makes, or resizes, a file system of so many bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def sized(size):
        options = f"size={size}" + ",remount" * bool(mounted)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
        mounted.append(size)
        return folder

    yield sized
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


def failed_line(outcomes):
    """What the ranks of a failed run say, each at most one line of its own."""
    lines = []
    for status, out, err in outcomes:
        assert status == 1, err
        assert "Traceback" not in err
        assert out == ""
        lines += [x for x in err.splitlines() if x.startswith("remask train")]
    (line,) = [x for x in lines if "another rank has ended" not in x]
    return line


@pytest.mark.parametrize(
    ("ranks", "stage"), [(1, 0), pytest.param(2, 3, marks=pytest.mark.slow)], ids=["one", "two"]
)
def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(
    boards, tmp_path, small_disk, ranks, stage
):
    settings = {
        "optimizer": {"kind": "adamw", "lr": 3e-3},
        "engine": {"zero_stage": stage},
        "save": {"every": 3, "keep": 9},
    }
    run_ranks(write_recipe(tmp_path, "roomy", boards, **settings), ranks)
    roomy = RunFolder(tmp_path / "roomy")
    size = roomy.newest().size
    disk = small_disk(int(1.6 * size) + ROOM)
    path = write_recipe(disk, "run", boards, **settings)
    line = failed_line(finish(start_ranks(path, ranks)))
    assert f"cannot write to {disk / 'run'} (" in line
    assert "a checkpoint takes about " in line
    assert line.endswith("give the same command again, which resumes from step 3")
    free = int(line.split(" and ")[1].split()[0].split(".")[0])  # in kB, as all here
    assert 0.5 * size < 1000 * free < size + ROOM  # what was written by halves is gone
    assert [x.name for x in (disk / "run" / "checkpoints").iterdir()] == ["step-00000003"]
    small_disk(int(3.5 * size) + ROOM)
    run_ranks(path, ranks)
    assert losses(disk / "run") == losses(tmp_path / "roomy")
    assert (disk / "run" / WEIGHTS).read_bytes() == (tmp_path / "roomy" / WEIGHTS).read_bytes()


def test_a_disk_without_room_for_the_first_checkpoint_is_said_too(boards, tmp_path, small_disk):
    disk = small_disk(ROOM * 2)
    path = write_recipe(disk, "run", boards, optimizer={"kind": "adamw", "lr": 3e-3})
    line = failed_line(finish(start_ranks(path)))
    assert "a checkpoint takes about " in line
    assert line.endswith("give the same command again, which starts from the beginning")
    assert list((disk / "run" / "checkpoints").iterdir()) == []
