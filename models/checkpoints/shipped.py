"""Checkpoints by name: those that come with the package, and those on the hub."""

import os
from pathlib import Path

from remask.models.checkpoints import hub
from remask.models.checkpoints.folder import CONFIG
from remask.models.checkpoints.hub_name import is_hub_name

SHIPPED = Path(__file__).parents[1] / "shipped"


def is_shipped(path_or_name: str | os.PathLike[str]) -> bool:
    """Whether this names a checkpoint of the package. A folder of that name takes precedence."""
    name = str(path_or_name)
    is_name = bool(name) and name == Path(name).name and not os.path.exists(name)
    return is_name and os.path.isfile(SHIPPED / name / CONFIG)  # also false for overlong names


def checkpoint_folder(path_or_name: str | os.PathLike[str], *, needs_weights: bool = True) -> Path:
    """The folder of a checkpoint that is given by its path, by the name of a shipped one, or by its
    name on the hub.

    Args:
        path_or_name: Such as runs/mine/model, sudoku, or hf:owner/name.
        needs_weights: Fetch also the weights of a checkpoint on the hub.
    """
    if is_hub_name(path_or_name):
        return hub.model_files(os.fspath(path_or_name), needs_weights=needs_weights)
    return SHIPPED / path_or_name if is_shipped(path_or_name) else Path(path_or_name)


def lasting_name(path_or_name: str | os.PathLike[str]) -> str:
    """A name of the same checkpoint that holds in other folders and on other hosts: the name of a
    shipped one, a name on the hub with its commit, or an absolute path."""
    name = os.fspath(path_or_name)
    if is_hub_name(name):
        return hub.pinned(name, "model")
    return name if is_shipped(name) else os.path.abspath(name)


def shipped_names() -> list[str]:
    return sorted(x.name for x in SHIPPED.iterdir()) if SHIPPED.is_dir() else []
