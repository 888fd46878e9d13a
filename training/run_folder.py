"""The folder of a training run: who may write to it, and its checkpoints.

    OUTPUT/recipe.json provenance.json      what is being trained, with which versions
    OUTPUT/log.jsonl  tensorboard/          how it goes
    OUTPUT/checkpoints/step-00001000/
        model/                              the model so far: `models.load` reads it
        deepspeed/                          optimiser and engine state, to go on from
        state.json                          step, scores, and every other file's size
    OUTPUT/model/                           the finished model
    OUTPUT/stop                             make this file, and the run saves and ends

A checkpoint is written aside and renamed when it is whole.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STATE = "state.json"
_NAME = re.compile(r"step-(\d{8,})")


class BusyError(ValueError):
    """Another run is writing to the folder."""


@dataclass(frozen=True)
class State:
    """Where a checkpoint stands."""

    step: int
    """Updates done."""
    world_size: int
    num_skipped: int = 0
    """Micro-batches left out as spikes."""
    recent_losses: list[float] = field(default_factory=list)
    """What a spike is measured by."""
    tally: list[float] = field(default_factory=list)
    """Sums over steps that no line of the log has yet."""
    scores: dict[str, float] | None = None
    """Of the held-out decode at this step."""


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    state: State

    @property
    def rank(self) -> tuple[float, float]:
        """Better ones are higher: more rows exact, then a lower loss."""
        scores = self.state.scores or {}
        return scores.get("exact", -1.0), -scores.get("loss", float("inf"))


class RunFolder:
    """One run's files."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.log = self.path / "log.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.stop = self.path / "stop"
        """A file that asks the run to save and end."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out while this one writes. The lock goes with the process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise ValueError(
                f"cannot write to output {self.path}: {error.strerror}; choose another folder"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise BusyError(
                    f"another run ({lock.read().strip()}) is training in {self.path}; wait for it, "
                    "stop it, or choose another output"
                ) from None
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
            yield

    def checkpoints(self) -> list[Checkpoint]:
        """Whole checkpoints, oldest first."""
        if not self._checkpoints.is_dir():
            return []
        found = [x for x in sorted(self._checkpoints.iterdir()) if _NAME.fullmatch(x.name)]
        return [Checkpoint(x, state) for x in found if (state := _read_state(x)) is not None]

    def newest(self) -> Checkpoint | None:
        return max(self.checkpoints(), key=lambda x: x.state.step, default=None)

    def aside(self, step: int) -> Path:
        """Where a checkpoint is written before it is whole."""
        return self._checkpoints / f".step-{step:08d}.partial"

    def begin(self, step: int) -> None:
        """Make room for a checkpoint, and remove what killed writers left."""
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        for stray in self._checkpoints.glob(".*"):
            shutil.rmtree(stray)
        self.aside(step).mkdir()

    def sweep(self) -> None:
        """Remove models that killed writers left half-written."""
        for stray in self.path.glob(f".{self.model.name}.*"):
            shutil.rmtree(stray, ignore_errors=True)

    def commit(self, state: State, *, keep: int) -> Path:
        """Put a checkpoint in its place, then remove those that are neither new nor best."""
        aside = self.aside(state.step)
        sizes = {str(x.relative_to(aside)): x.stat().st_size for x in _files(aside)}
        (aside / STATE).write_text(json.dumps({"files": sizes, **asdict(state)}))
        final = self._checkpoints / f"step-{state.step:08d}"
        if final.exists():  # one that was not whole
            _remove(final)
        aside.rename(final)
        whole = self.checkpoints()
        kept = {x.path for x in whole[-keep:]}
        scored = [x for x in whole if x.state.scores is not None]
        if scored:
            kept.add(max(scored, key=lambda x: x.rank).path)
        for checkpoint in whole:
            if checkpoint.path not in kept:
                _remove(checkpoint.path)
        return final


def _remove(checkpoint: Path) -> None:
    """Hide it first: a kill half-way leaves something that is swept up, not half a checkpoint."""
    hidden = checkpoint.with_name(f".{checkpoint.name}.old")
    checkpoint.rename(hidden)
    shutil.rmtree(hidden)


def _files(folder: Path) -> list[Path]:
    return [x for x in sorted(folder.rglob("*")) if x.is_file() and x.name != STATE]


def _read_state(folder: Path) -> State | None:
    """A checkpoint's state, or none if it is not whole."""
    try:
        values: dict[str, Any] = json.loads((folder / STATE).read_text())
        sizes = values.pop("files")
        state = State(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    there = {str(x.relative_to(folder)): x.stat().st_size for x in _files(folder)}
    return state if there == sizes else None
