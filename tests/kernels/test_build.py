"""Building on first use: without a compiler, with a broken one, in an unwritable cache."""

import os
import subprocess
import sys

import pytest

from remask.kernels import build

SCRIPT = """
import torch, warnings
warnings.simplefilter("ignore")
from remask import kernels
from remask.kernels.build import native
out = kernels.history_step(torch.ones(1, 2), torch.ones(1, 2), decay=0.5)
print(kernels.is_compiled("cpu"), native("cpu").detail, out.shape)
"""


def run(script=SCRIPT, **environment):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_a_compiler_the_reference_runs_and_says_why(tmp_path):
    out = run(CXX="no-such-compiler", REMASK_CACHE=str(tmp_path))
    assert out.startswith("False no C++ compiler found (CXX=no-such-compiler); install one")


def test_without_a_compiler_the_user_is_told_once(tmp_path):
    script = SCRIPT.replace('warnings.simplefilter("ignore")', 'warnings.simplefilter("always")')
    script += "kernels.history_step(torch.ones(1, 2), torch.ones(1, 2), decay=0.5)\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"CXX": "no-such-compiler", "REMASK_CACHE": str(tmp_path)},
    )
    assert done.stderr.count("run on the slower reference path: no C++ compiler found") == 1


def test_a_failing_compiler_is_named_and_leaves_nothing(tmp_path):
    broken = tmp_path / "broken-c++"
    broken.write_text("#!/bin/sh\necho 'fatal error: disk on fire' >&2\nexit 1\n")
    broken.chmod(0o755)
    out = run(CXX=str(broken), REMASK_CACHE=str(tmp_path / "cache"))
    assert "could not compile history_cpu.cpp: fatal error: disk on fire" in out
    assert list((tmp_path / "cache" / "kernels").iterdir()) == []


@pytest.mark.usefixtures("cpu_library")
def test_an_unwritable_cache_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    out = run(REMASK_CACHE=str(tmp_path / "file"))
    assert f"cannot write to {tmp_path}/file/kernels" in out
    assert "set REMASK_CACHE" in out


def test_reference_mode_is_honoured_and_others_named(tmp_path):
    assert "False REMASK_KERNELS=reference asks" in run(REMASK_KERNELS="reference")
    assert "must be auto or reference, got 'fast'" in run(REMASK_KERNELS="fast")


@pytest.mark.usefixtures("cpu_library")
def test_a_damaged_library_is_rebuilt(tmp_path):
    cache = tmp_path / "cache"
    assert run(REMASK_CACHE=str(cache)).startswith("True")
    (library,) = (cache / "kernels").iterdir()
    library.write_bytes(b"half a libr")
    assert run(REMASK_CACHE=str(cache)).startswith("True")


@pytest.mark.usefixtures("cpu_library")
def test_a_cache_that_others_can_write_is_not_trusted(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    out = run(REMASK_CACHE=str(tmp_path))
    assert f"others can write to {folder}, so no kernel is loaded from it" in out


@pytest.mark.usefixtures("cpu_library")
def test_a_killed_build_is_cleaned_up_and_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path))
    leftover = tmp_path / "kernels" / "building-killed"
    leftover.mkdir(parents=True, mode=0o700)
    leftover.parent.chmod(0o700)
    (leftover / "half.so").write_text("half a library")
    os.utime(leftover, (0, 0))  # long ago
    path = build.build(build._cpu_command())
    assert list(leftover.parent.iterdir()) == [path]
    changed = path.stat().st_mtime_ns
    assert build.build(build._cpu_command()) == path
    assert path.stat().st_mtime_ns == changed, "a second build must come from the cache"


@pytest.mark.usefixtures("cpu_library")
def test_two_processes_may_build_at_once(tmp_path):
    environment = os.environ | {"REMASK_CACHE": str(tmp_path)}
    both = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [process.communicate()[0][:4] for process in both] == [b"True", b"True"]
    assert len(list((tmp_path / "kernels").iterdir())) == 1
