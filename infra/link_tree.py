"""Lay the package out for tools that read files instead of importing: a link to every module.

A type checker cannot follow the mapping of `remask.models` to `models/`. It can follow links to
single files. Links to folders would show it every class twice.

    python infra/link_tree.py build/links && basedpyright
"""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("evaluation", "infra", "kernels", "models", "pipeline", "training")


def make_link_tree(folder: Path) -> None:
    """Replace `folder` by one with the layout of a wheel, in which every module is a link."""
    shutil.rmtree(folder, ignore_errors=True)
    modules = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    links = {path: path.relative_to(ROOT) for path in modules}
    links |= {path: path.relative_to(ROOT / "remask") for path in (ROOT / "remask").glob("*.py")}
    for path, name in links.items():
        link = folder / "remask" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(path, link.parent))


if __name__ == "__main__":
    make_link_tree(Path(sys.argv[1]))
