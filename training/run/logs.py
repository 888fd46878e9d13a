"""The log of a run: JSON lines, TensorBoard, Weights & Biases, and a progress bar."""

import json
import resource
import sys
import time
import uuid
from types import TracebackType
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from remask.models.checkpoints.folder import write_atomically
from remask.pipeline.runtime.progress import LINE_EVERY_S
from remask.training.plan import TrainingPlan
from remask.training.run.checkpoint import State
from remask.training.run.folder import RunFolder
from remask.training.tally import Tally
from remask.training.world import TrainingError, World


class Log:
    """Sums over the steps of all ranks, which the first rank logs; a context manager."""

    def __init__(self, folder: RunFolder, plan: TrainingPlan, world: World, state: State) -> None:
        self._plan, self._world, self._config = plan, world, plan.recipe.log
        self._tally = torch.zeros(Tally.size(), dtype=torch.float64)
        if len(state.tally) not in (0, Tally.size()):
            raise TrainingError(
                f"the checkpoint at step {state.step} of {folder.path} is of another version: its "
                f"tally has {len(state.tally)} numbers, not {Tally.size()}; use that version"
            )
        if state.tally and world.is_first:  # sums of all ranks before the checkpoint
            self._tally += torch.tensor(state.tally, dtype=torch.float64)
        self._logged_before = Tally(self._tally.clone())
        self._started = self._since = self._last_line = time.monotonic()
        first_step = self._first_step = state.step
        self._scores: dict[str, float] = {}
        self._file = self._board = self._wandb = self._bar = None
        if not world.is_first:
            return
        keep_lines(folder, first_step)
        self._file = folder.log.open("a")
        if self._config.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder.tensorboard), purge_step=first_step + 1)
        if self._config.wandb:
            self._wandb = _start_wandb(self._config.wandb, folder, plan)
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("train"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task("", total=plan.steps, completed=first_step, note="")

    def __enter__(self) -> "Log":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for part in (self._bar and self._bar.stop, self._file and self._file.close):
            if part:
                part()
        if self._board:
            self._board.close()
        if self._wandb:
            self._wandb.finish(exit_code=int(kind is not None))

    def add(self, step: int, sums: Tensor, rate: float, num_skipped: int) -> None:
        """Add the sums of a step; every `log.every` steps, and at the last, write a line."""
        self._tally += sums
        if step % self._config.every and step != self._plan.steps:
            return
        tally = Tally(torch.tensor(self.tally(), dtype=torch.float64))
        self._tally.zero_()
        rows, tokens = (
            tally.rows - self._logged_before.rows,
            tally.tokens - self._logged_before.tokens,
        )
        self._logged_before = Tally(self._tally.clone())
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        line = {
            **tally.summary(self._plan.recipe.objective),
            "lr": rate * self._plan.recipe.optimizer.lr,
            "rows_per_s": round(rows / max(seconds, 1e-9), 1),
            "tokens_per_s": round(tokens / max(seconds, 1e-9), 1),
            "peak_bytes": peak_bytes(),
        }
        if self._plan.recipe.spikes:
            line["skipped"] = num_skipped
        self._write("train", step, line)
        self._show(step, line)

    def tally(self) -> list[float]:
        """Sums of all ranks since the last line; all ranks must call this."""
        return self._world.total(self._tally.clone()).tolist()

    def scores(self, step: int, scores: dict[str, float], seconds: float) -> None:
        """Log a held-out decode, whose seconds do not count in the trainer's speed."""
        self._scores = scores
        self._write("held_out", step, scores)
        self._since += seconds

    def round(self, step: int, number: int, seconds: float) -> None:
        """Log that a round begins, or goes on, after waiting for its data; the seconds do not count
        in the trainer's speed."""
        self._write("round", step, {"round": number, "waited_s": round(seconds, 3)})
        self._since += seconds

    def _write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.write(json.dumps({"event": kind, "step": step, **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            if self._board:
                self._board.add_scalar(f"{kind}/{name}", value, step)
        if self._wandb:
            self._wandb.log({f"{kind}/{name}": x for name, x in values.items()}, step=step)

    def _show(self, step: int, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        parts = [
            f"{x} {line[f'{x}_loss']:.3f}"
            for x in ("reveal", "mask", "keep")
            if f"{x}_loss" in line
        ]
        if "exact" in self._scores:
            parts.append(f"held out {self._scores['exact']:.1%} exact")
        note = (
            f"loss {line['loss']:.4f} ({', '.join(parts)}), {line['rows_per_s']:,.0f} rows/s, "
            f"{line['tokens_per_s']:,.0f} tokens/s"
        )
        if self._bar:
            self._bar.update(self._task, completed=step, note=note)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S or step == self._plan.steps:
            self._last_line = time.monotonic()
            done = step - self._first_step
            left = (self._plan.steps - step) * (self._last_line - self._started) / max(1, done)
            text = {
                "stage": "train",
                "step": step,
                "steps": self._plan.steps,
                "eta_s": round(left, 1),
            }
            print(json.dumps({**text, **line}), file=sys.stderr, flush=True)


def keep_lines(folder: RunFolder, step: int) -> None:
    """Remove lines of the log after a step, since those steps will be repeated."""
    if not folder.log.exists():
        return
    kept = []
    for line in folder.log.read_text(errors="replace").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError, RecursionError):  # cut off by a kill, or damaged
            continue
    write_atomically(folder.log, "".join(kept))


def peak_bytes() -> int:
    """Peak memory of this process: on its GPU if it has one, otherwise resident memory."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_wandb(project: str | None) -> None:
    """Raise ValueError if a Weights & Biases project is given but wandb is not installed."""
    if project is None:
        return
    try:
        import wandb  # pyright: ignore[reportMissingImports] # noqa: F401
    except ImportError:
        raise ValueError(
            f"log.wandb is {project!r}, but wandb is not installed; install it or unset log.wandb"
        ) from None


def _start_wandb(project: str, folder: RunFolder, plan: TrainingPlan) -> Any:
    import wandb  # pyright: ignore[reportMissingImports]

    name = folder.path / "wandb_id"
    if not name.exists():
        name.write_text(uuid.uuid4().hex)
    return wandb.init(
        project=project,
        name=folder.path.name,
        dir=str(folder.path),
        id=name.read_text(),
        resume="allow",
        config=plan.content,
    )
