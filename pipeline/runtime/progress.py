"""Progress of long work: a bar on a terminal, otherwise a JSON line every few seconds."""

import json
import sys
import time
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from remask.pipeline.runtime.ending import duration
from remask.pipeline.runtime.retries import Retries

LINE_EVERY_S = 10.0


@dataclass(frozen=True)
class Summary:
    """The result of a stage."""

    stage: str
    units: int
    new_units: int
    rows: int
    tokens: int
    skipped: int
    seconds: float
    output: str
    counts: str = "tokens"
    """Name of what `tokens` counts."""
    retries: int = 0
    """Number of retried storage operations."""
    note: str = ""
    """What the user should know about the output, if anything."""

    def __str__(self) -> str:
        retried = f", {self.retries:,} storage faults retried" if self.retries else ""
        output = f"{self.output}; {self.note}" if self.note else self.output
        if self.new_units == 0:
            return f"{self.stage}: all {self.units} units existed already{retried}: {output}"
        left_out = f", {self.skipped:,} records left out" if self.skipped else ""
        return (
            f"{self.stage}: {self.new_units} of {self.units} units made, {self.rows:,} rows, "
            f"{self.tokens:,} {self.counts}{left_out}{retried} in {duration(self.seconds)}: "
            f"{output}"
        )


class Meter:
    """Counts units, rows and tokens of one stage; a context manager."""

    def __init__(self, stage: str, total: int, done: int = 0, counts: str = "tokens") -> None:
        """`counts` names the quantity that is counted besides units and rows."""
        self.stage, self.total, self.done, self._counts = stage, total, done, counts
        self.rows = self.tokens = self.skipped = 0
        self._retries = Retries.count
        self._start = self._last_line = time.monotonic()
        self._end: float | None = None
        self._new = 0
        self._bar = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rates]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(stage, total=total, completed=done, rates="")

    def __enter__(self) -> "Meter":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end = time.monotonic()
        if self._bar:
            self._bar.stop()
        elif kind is None:
            self._line("done")

    def add(self, rows: int, tokens: int, skipped: int = 0) -> None:
        """Record that a unit is done."""
        self.done += 1
        self._new += 1
        self.skipped += skipped
        self.rows += rows
        self.tokens += tokens
        if self._bar:
            rows_per_s, per_s = self._rate(self.rows), self._rate(self.tokens)
            rates = f"{rows_per_s:,.0f} rows/s, {per_s:,.0f} {self._counts}/s"
            self._bar.update(self._task, completed=self.done, rates=rates)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self._line("progress")

    def summary(self, new_units: int, output: str) -> Summary:
        """The result, once the stage is done."""
        return Summary(
            self.stage,
            self.total,
            new_units,
            self.rows,
            self.tokens,
            self.skipped,
            self.seconds,
            output,
            self._counts,
            Retries.count - self._retries,
        )

    @property
    def seconds(self) -> float:
        return (self._end or time.monotonic()) - self._start

    def _rate(self, count: int) -> float:
        return count / max(self.seconds, 1e-9)

    def _line(self, event: str) -> None:
        line = {
            "event": event,
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "rows_per_s": round(self._rate(self.rows)),
            f"{self._counts}_per_s": round(self._rate(self.tokens)),
            "skipped": self.skipped,
            "eta_s": round((self.total - self.done) * self.seconds / max(1, self._new), 1),
            "seconds": round(self.seconds, 1),
        }
        print(json.dumps(line), file=sys.stderr, flush=True)
