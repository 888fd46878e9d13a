"""A checkpoint of a run: where it stands, and that every file is as it was written.

model/                          the model so far: `models.load` reads it
deepspeed/                      optimiser and engine state, to go on from
state.json                      step and scores; size and SHA-256 of every other file, and of
                                what it says itself
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remask.models.checkpoints.folder import flush, sha256_of
from remask.models.config import from_mapping

STATE = "state.json"


@dataclass(frozen=True)
class State:
    """Where a checkpoint stands."""

    step: int
    """Updates done."""
    world_size: int
    num_skipped: int = 0
    """Micro-batches left out as spikes."""
    recent_losses: tuple[float, ...] = ()
    """What a spike is measured by."""
    tally: tuple[float, ...] = ()
    """Sums over steps that no line of the log has yet."""
    scores: dict[str, float] | None = None
    """Of the held-out decode at this step."""

    def __post_init__(self) -> None:
        if self.step < 0 or self.world_size < 1 or self.num_skipped < 0:
            raise ValueError(
                "step and num_skipped must be at least 0 and world_size at least 1, got "
                f"{self.step}, {self.num_skipped}, {self.world_size}"
            )


@dataclass(frozen=True)
class SavedFile:
    """A file as it was written."""

    size: int
    sha256: str


@dataclass(frozen=True)
class _Record:
    """What state.json holds."""

    state: State
    files: dict[str, SavedFile]
    """By path below the checkpoint."""
    sha256: str
    """Of the two above."""


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    state: State
    files: dict[str, SavedFile]

    @property
    def rank(self) -> tuple[float, float]:
        """Better ones are higher: more rows exact, then a lower loss."""
        scores = self.state.scores or {}
        return scores.get("exact", -1.0), -scores.get("loss", float("inf"))

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(x.size for x in self.files.values())

    def faults(self, part: int = 0, parts: int = 1) -> list[str]:
        """Read one of so many parts of the files, and name those that are not as written."""
        names = sorted(self.files)[part::parts]
        try:
            sums = sha256_of([self.path / name for name in names])
        except OSError as error:
            return [f"{error.filename} cannot be read: {error.strerror}"]
        wrong = [n for n, x in zip(names, sums, strict=True) if x != self.files[n].sha256]
        return [f"{self.path / name} does not match its checksum" for name in wrong]


def files_of(folder: Path) -> list[str]:
    """Paths of a checkpoint's files below its folder, but for state.json."""
    below = (x for x in folder.rglob("*") if x.is_file() and x != folder / STATE)
    return sorted(str(x.relative_to(folder)) for x in below)


def seal(folder: Path, names: Sequence[str]) -> dict[str, SavedFile]:
    """Flush files to the disk, and note their sizes and checksums."""
    paths = [folder / name for name in names]
    for path in paths:
        flush(path)
    sums = sha256_of(paths)
    return {
        name: SavedFile(path.stat().st_size, sha256)
        for name, path, sha256 in zip(names, paths, sums, strict=True)
    }


def write_state(folder: Path, state: State, files: dict[str, SavedFile]) -> None:
    """Write state.json, and flush it and the folder's names to the disk."""
    values = {"state": asdict(state), "files": {k: asdict(x) for k, x in files.items()}}
    (folder / STATE).write_text(json.dumps({**values, "sha256": _digest(values)}))
    flush(folder / STATE)
    for path in (*(x for x in folder.rglob("*") if x.is_dir()), folder):
        flush(path)


def read_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint whose files are there, at their sizes; ValueError, saying what is wrong, if not.

    What the files hold is for `faults` to check.
    """
    record = _read_record(folder / STATE)
    sizes = {name: (folder / name).stat().st_size for name in files_of(folder)}
    for name in sorted({*sizes, *record.files}):
        if name not in sizes:
            raise ValueError(f"{folder} lacks {name}")
        if name not in record.files:
            raise ValueError(f"{folder / name} does not belong there")
        if sizes[name] != record.files[name].size:
            raise ValueError(
                f"{folder / name} has {sizes[name]} bytes instead of {record.files[name].size}"
            )
    return Checkpoint(folder, record.state, record.files)


def _read_record(path: Path) -> _Record:
    try:
        values = json.loads(path.read_text())
        record: _Record = from_mapping(_Record, values, str(path))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not a checkpoint's state: {_short(error)}") from error
    if record.sha256 != _digest({"state": values["state"], "files": values["files"]}):
        raise ValueError(f"{path} does not match its own checksum")
    return record


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _short(error: Exception) -> str:
    """An error about values that may be of any length."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"
