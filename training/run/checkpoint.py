"""A checkpoint of a run: its state, and the checksums of its files.

model/          the model at this step, which `remask.load` reads
deepspeed/      optimizer and engine state, to resume from
state.json      step and scores; size and SHA-256 of every other file, and a SHA-256 of its own
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from remask.models.checkpoints.folder import flush, sha256_of
from remask.models.config import from_mapping
from remask.models.ranges import Range, check_fields

STATE = "state.json"


@dataclass(frozen=True)
class State:
    """The position of a run."""

    step: Annotated[int, Range("[0, inf)")]
    """Updates done."""
    world_size: Annotated[int, Range("[1, inf)")]
    num_skipped: Annotated[int, Range("[0, inf)")] = 0
    """Micro-batches skipped as spikes."""
    recent_losses: tuple[float, ...] = ()
    """Losses that the next one is compared with, to detect spikes."""
    tally: tuple[float, ...] = ()
    """Sums over the steps since the last line of the log."""
    scores: dict[str, float] | None = None
    """Scores of the held-out decode at this step, if there was one."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class SavedFile:
    """Size and checksum of a file as it was written."""

    size: int
    sha256: str


@dataclass(frozen=True)
class _Record:
    """What state.json holds."""

    state: State
    files: dict[str, SavedFile]
    """By path relative to the checkpoint."""
    sha256: str
    """Checksum of the two fields above."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk, whose files exist with their sizes."""

    path: Path
    state: State
    files: dict[str, SavedFile]

    @property
    def quality(self) -> tuple[float, float]:
        """Sort key, higher for better checkpoints: by exact rows, then by loss."""
        scores = self.state.scores or {}
        return scores.get("exact", -1.0), -scores.get("loss", float("inf"))

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(x.size for x in self.files.values())

    def faults(self, part: int = 0, parts: int = 1) -> list[str]:
        """Verify one of `parts` shares of the files, and describe those that are damaged."""
        names = sorted(self.files)[part::parts]
        try:
            sums = sha256_of([self.path / name for name in names])
        except OSError as error:
            return [f"{error.filename} cannot be read: {error.strerror}"]
        wrong = [n for n, x in zip(names, sums, strict=True) if x != self.files[n].sha256]
        return [f"{self.path / name} does not match its checksum" for name in wrong]


def files_of(folder: Path) -> list[str]:
    """Relative paths of a checkpoint's files, except state.json."""
    files = (x for x in folder.rglob("*") if x.is_file() and x != folder / STATE)
    return sorted(str(x.relative_to(folder)) for x in files)


def seal(folder: Path, names: Sequence[str]) -> dict[str, SavedFile]:
    """Flush files to the disk, and return their sizes and checksums."""
    paths = [folder / name for name in names]
    for path in paths:
        flush(path)
    sums = sha256_of(paths)
    return {
        name: SavedFile(path.stat().st_size, sha256)
        for name, path, sha256 in zip(names, paths, sums, strict=True)
    }


def write_state(folder: Path, state: State, files: dict[str, SavedFile]) -> None:
    """Write state.json, and flush it and all directories to the disk."""
    values = {"state": asdict(state), "files": {k: asdict(x) for k, x in files.items()}}
    (folder / STATE).write_text(json.dumps({**values, "sha256": _digest(values)}))
    flush(folder / STATE)
    for path in (*(x for x in folder.rglob("*") if x.is_dir()), folder):
        flush(path)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint's state, and check that its files exist with their sizes.

    `Checkpoint.faults` verifies their contents.

    Raises:
        ValueError: The checkpoint is incomplete or damaged.
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
    """The first line of an error, cut to 200 characters, since it may quote long values."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"
