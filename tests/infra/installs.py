"""Virtual environments of their own: the dependencies, with remask installed, or beside a clone.

No network is needed: a link to every package of this environment stands for its installation.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass, field
from pathlib import Path

from tests.places import ROOT

SITE = Path(sysconfig.get_path("purelib"))
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Install:
    """An environment in which `import remask` works, or is tried."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    """Added to the environment of its processes."""

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """`python ARGUMENTS`."""
        return subprocess.run(
            [self.python, *arguments],
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        path = f"{self.python.parent}:{os.environ['PATH']}"
        return inherited | {"PATH": path, "OMP_NUM_THREADS": "1"} | self.variables


def dependencies_alone(folder: Path) -> Install:
    """Everything that this environment has, but remask."""
    venv.create(folder, symlinks=True, with_pip=False)
    install = Install(folder)
    for entry in SITE.iterdir():
        if "remask" not in entry.name and not (install.site / entry.name).exists():
            (install.site / entry.name).symlink_to(entry)
    for script in ("deepspeed", "ray"):  # always run by an interpreter that is named
        install.python.with_name(script).symlink_to(BIN / script)
    return install


def with_pip(folder: Path, *what: str | Path) -> Install:
    """The same with what pip installs, offline and without dependencies."""
    install = dependencies_alone(folder)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "--python", install.python, "install", *options, *what]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return install


def copy_clone(folder: Path) -> Path:
    """A copy of the repository as one clones it."""
    ignored = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(ROOT, folder, ignore=ignored))


def build_wheel(clone: Path) -> Path:
    """The wheel of a clone, built in place."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "."],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (clone / "dist").glob("*.whl")
    return path
