"""What an output came from: its recipe and the versions that made it, written beside it."""

import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.storage import Storage

RECIPE, PROVENANCE = "recipe.json", "provenance.json"


def claim(storage: Storage, content: dict[str, Any]) -> None:
    """Make sure that what is in a folder is of this recipe, and write the recipe beside it."""
    content = json.loads(json.dumps(content))
    if storage.exists(RECIPE):
        found = json.loads(storage.read(RECIPE))
        if found.get("schema", 1) != content.get("schema", 1):
            raise ValueError(
                f"{storage.uri} has schema version {found.get('schema', 1)}, this build writes "
                f"{content.get('schema', 1)}; remove it or choose another output"
            )
        if found != content:
            changed = ", ".join(_differences(found, content))
            raise ValueError(
                f"{storage.uri} was made by another recipe (different: {changed}); choose another "
                "output or go back to that recipe"
            )
        return
    storage.write(PROVENANCE, json.dumps(provenance(), indent=2).encode())
    storage.write(RECIPE, json.dumps(content, indent=2).encode())


def provenance() -> dict[str, Any]:
    """Versions and commit: what an output came from, besides its recipe."""
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
    }


def _differences(old: Any, new: Any, at: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in sorted(old.keys() | new.keys())
            for found in _differences(old.get(key), new.get(key), f"{at}.{key}" if at else key)
        ]
    return [] if old == new else [f"{at} {old!r} → {new!r}"]
