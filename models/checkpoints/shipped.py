"""The checkpoints that come with the package, which are loaded by name."""

import os
from pathlib import Path

from remask.models.checkpoints.folder import CONFIG

SHIPPED = Path(__file__).parents[1] / "shipped"


def is_shipped(path_or_name: str | os.PathLike[str]) -> bool:
    """Whether this names a checkpoint of the package. A folder of that name takes precedence."""
    name = str(path_or_name)
    is_name = bool(name) and name == Path(name).name and not os.path.exists(name)
    return is_name and os.path.isfile(SHIPPED / name / CONFIG)  # also false for overlong names


def checkpoint_folder(path_or_name: str | os.PathLike[str]) -> Path:
    """The folder of a checkpoint that is given by its path or by the name of a shipped one."""
    return SHIPPED / path_or_name if is_shipped(path_or_name) else Path(path_or_name)


def shipped_names() -> list[str]:
    return sorted(x.name for x in SHIPPED.iterdir()) if SHIPPED.is_dir() else []
