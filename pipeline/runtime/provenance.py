"""Provenance of an output: its recipe and the versions that made it, written beside it."""

import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from remask.models.checkpoints.hub import resolved
from remask.pipeline.runtime.storage import Storage, StorageError

RECIPE, PROVENANCE = "recipe.json", "provenance.json"


def claim(storage: Storage, content: dict[str, Any]) -> None:
    """Claim a folder for a recipe: write the recipe into it, or check that it is the same.

    Creating the file is atomic, so if two recipes claim a folder at once, one of them is refused.
    """
    content = json.loads(json.dumps(content))
    if not storage.exists(RECIPE):
        storage.write(PROVENANCE, json.dumps(provenance(), indent=2).encode())
        storage.create(RECIPE, json.dumps(content, indent=2).encode())
    check_claim(storage, content)


def check_claim(storage: Storage, content: dict[str, Any]) -> None:
    """Raise ValueError if a folder belongs to another recipe."""
    content = json.loads(json.dumps(content))  # tuples to lists, as they are read
    claimed = read_json(storage, RECIPE)
    if claimed.get("schema", 1) != content.get("schema", 1):
        raise ValueError(
            f"{storage.uri} has schema version {claimed.get('schema', 1)}, this build writes "
            f"{content.get('schema', 1)}; remove it or choose another output"
        )
    if claimed != content:
        changed = ", ".join(_differences(claimed, content))
        raise ValueError(
            f"{storage.uri} was made by another recipe (different: {changed}); choose another "
            "output or go back to that recipe"
        )


def read_json(storage: Storage, name: str) -> dict[str, Any]:
    """Read a JSON object from a file; StorageError if the file is damaged."""
    try:
        values = json.loads(storage.read(name))
        if isinstance(values, dict):
            return values
        reason = f"it holds {type(values).__name__}, not keys and values"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise StorageError(
        f"{storage.path(name)} is damaged: {reason}; remove it and give the same command again"
    )


def provenance() -> dict[str, Any]:
    """Versions of Python and the packages, the git commit, and the commits of what was read from
    the hub, if anything was."""
    packages = ("remask", "deepspeed", "numpy", "pyarrow", "polars", "ray", "torch")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return {
        "python": platform.python_version(),
        "versions": versions,
        "commit": git.stdout.strip() or None,
    } | ({"hub": resolved()} if resolved() else {})


def _differences(old: Any, new: Any, at: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            difference
            for key in sorted(old.keys() | new.keys())
            for difference in _differences(old.get(key), new.get(key), f"{at}.{key}" if at else key)
        ]
    return [] if old == new else [f"{at} {old!r} → {new!r}"]
