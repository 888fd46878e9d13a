"""The folder of a training run: who may write to it, its checkpoints, and how it ended.

    OUTPUT/recipe.json provenance.json      what is trained, with which versions
    OUTPUT/log.jsonl  tensorboard/          the log
    OUTPUT/checkpoints/step-00001000/       where to resume from (`training/run/checkpoint.py`)
    OUTPUT/model/                           the finished model
    OUTPUT/outcome.json                     how the last run that was not killed ended
    OUTPUT/stop                             create this file, and the run saves and ends

A checkpoint is written aside and renamed when it is complete.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from remask.models.checkpoints.folder import flush, write_atomically
from remask.models.config import from_mapping
from remask.pipeline.runtime.ending import duration
from remask.training.run.checkpoint import (
    Checkpoint,
    SavedFile,
    State,
    read_checkpoint,
    write_state,
)

_NAME = re.compile(r"step-(\d{8,})")


class BusyError(ValueError):
    """Another run is writing to the folder."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    step: int
    steps: int
    scores: dict[str, float] | None
    path: str

    @property
    def is_finished(self) -> bool:
        return self.step >= self.steps

    def __str__(self) -> str:
        return f"train: {self._what}: {self.path}"

    def after(self, seconds: float) -> str:
        """The same with the time that this launch took."""
        return f"train: {self._what} in {duration(seconds)}: {self.path}"

    @property
    def _what(self) -> str:
        if not self.is_finished:
            return f"stopped and saved at step {self.step} of {self.steps}"
        scores = self.scores or {}
        shown = ", ".join(f"{k} {scores[k]:.4f}" for k in ("exact", "loss") if k in scores)
        return f"{self.steps} steps done{f' ({shown})' if shown else ''}"


class RunFolder:
    """One run's files."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.log = self.path / "log.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.stop = self.path / "stop"
        """A file whose existence asks the run to save and end."""
        self._outcome = self.path / "outcome.json"

    @contextlib.contextmanager
    def locked(self, timeout_s: float = 0) -> Iterator[None]:
        """Keep other runs out while this one writes; the lock ends with the process.

        Args:
            timeout_s: How long to wait for a run that is ending.

        Raises:
            ValueError: The folder cannot be written to.
            BusyError: Another run holds the lock.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise ValueError(
                f"cannot write to output {self.path}: {error.strerror}; choose another folder"
            ) from error
        with lock:
            deadline = time.monotonic() + timeout_s
            while not _try_lock(lock.fileno()):
                if time.monotonic() >= deadline:
                    lock.seek(0)
                    raise BusyError(
                        f"another run ({lock.read().strip()}) is training in {self.path}; wait for "
                        "it, stop it, or choose another output"
                    )
                time.sleep(0.1)
            with contextlib.suppress(
                OSError
            ):  # the disk may be full, and the text is only for BusyError
                os.ftruncate(lock.fileno(), 0)
                os.write(lock.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
            yield

    def survey(self) -> tuple[list[Checkpoint], dict[str, str]]:
        """Complete checkpoints, oldest first, and the faults of the others by name."""
        complete: list[Checkpoint] = []
        faults: dict[str, str] = {}
        for path in self._steps():
            try:
                checkpoint = read_checkpoint(path)
                if checkpoint.state.step != int(path.name.removeprefix("step-")):
                    raise ValueError(f"{path} holds step {checkpoint.state.step}")
                complete.append(checkpoint)
            except ValueError as error:
                faults[path.name] = str(error)
        return sorted(complete, key=lambda x: x.state.step), faults

    def checkpoints(self) -> list[Checkpoint]:
        """Checkpoints whose files are all there, oldest first."""
        return self.survey()[0]

    def newest(self) -> Checkpoint | None:
        return max(self.checkpoints(), key=lambda x: x.state.step, default=None)

    def last_step(self) -> int:
        """Step of the newest checkpoint, damaged ones included; 0 if there is none."""
        return max((int(x.name.removeprefix("step-")) for x in self._steps()), default=0)

    def aside(self, step: int) -> Path:
        """Where a checkpoint is written until it is complete."""
        return self._checkpoints / f".step-{step:08d}.partial"

    def begin(self, step: int) -> None:
        """Create the folder to write a checkpoint in, and remove what killed writers left."""
        self._checkpoints.mkdir(parents=True, exist_ok=True)
        for stray in self._checkpoints.glob(".*"):
            shutil.rmtree(stray)
        self.aside(step).mkdir()

    def discard(self, step: int) -> None:
        """Remove a checkpoint that could not be written; any rank may call this."""
        aside = self.aside(step)
        with contextlib.suppress(OSError):  # another rank was faster
            # Renamed first, so that ranks that still write cannot recreate it.
            hidden = aside.rename(aside.with_name(f"{aside.name}.{os.getpid()}"))
            shutil.rmtree(hidden, ignore_errors=True)

    def sweep(self) -> None:
        """Remove models that killed writers left half-written."""
        for stray in self.path.glob(f".{self.model.name}.*"):
            shutil.rmtree(stray, ignore_errors=True)

    def commit(self, state: State, files: dict[str, SavedFile], *, keep: int) -> Path:
        """Publish a checkpoint, then remove all others but the newest `keep` and the best.

        Damaged checkpoints are removed as well, and those of later steps, which remain when a run
        resumed from an earlier one.
        """
        aside = self.aside(state.step)
        write_state(aside, state, files)
        final = self._checkpoints / f"step-{state.step:08d}"
        if final.exists():  # a damaged one
            _remove(final)
        aside.rename(final)
        flush(self._checkpoints)
        complete = [x for x in self.checkpoints() if x.state.step <= state.step]
        kept = {x.path for x in complete[-keep:]}
        scored = [x for x in complete if x.state.scores is not None]
        if scored:
            kept.add(max(scored, key=lambda x: x.quality).path)
        for path in self._steps():
            if path not in kept:
                _remove(path)
        return final

    def record(self, outcome: RunOutcome) -> None:
        """Write how the run ended; called last, when everything else is written."""
        write_atomically(self._outcome, json.dumps(asdict(outcome)))

    def outcome(self) -> RunOutcome | None:
        """How the last run that was not killed ended; None if there was none."""
        try:
            return from_mapping(
                RunOutcome, json.loads(self._outcome.read_text()), str(self._outcome)
            )
        except (OSError, ValueError, OverflowError, RecursionError):
            return None

    def last_ended(self) -> tuple[int, int] | None:
        """A value that changes whenever a run records its outcome; None before the first."""
        try:
            os.listdir(self.path)  # makes a network file system refresh its cache
            with self._outcome.open() as file:
                status = os.fstat(file.fileno())
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def _steps(self) -> list[Path]:
        if not self._checkpoints.is_dir():
            return []
        return [x for x in sorted(self._checkpoints.iterdir()) if _NAME.fullmatch(x.name)]


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(checkpoint: Path) -> None:
    """Rename first: a kill half-way leaves a hidden folder for `begin`, not half a checkpoint."""
    hidden = checkpoint.with_name(f".{checkpoint.name}.old")
    checkpoint.rename(hidden)
    shutil.rmtree(hidden)
