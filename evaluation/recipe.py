"""Evaluation recipes: which suites, checkpoints and decoders, and the tables to make of them."""

from dataclasses import dataclass, field
from typing import Any

from remask.evaluation.decoder import Decoder
from remask.evaluation.suite import Suite, make_suite


@dataclass(frozen=True, kw_only=True)
class RunSelection:
    """Some of the suites × checkpoints × decoders; all of a kind when it is not named."""

    suites: tuple[str, ...] | None = None
    checkpoints: tuple[str, ...] | None = None
    decoders: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RowConfig:
    """A row of a table: a run of ours, figures quoted from elsewhere, or both."""

    label: str
    checkpoint: str | None = None
    decoder: str | None = None
    quoted: tuple[float | None, ...] | None = None
    """Published figures, one per metric, as they were printed (percentages as such)."""

    def __post_init__(self) -> None:
        if (self.checkpoint is None) != (self.decoder is None):
            raise ValueError(f"row {self.label!r} needs both a checkpoint and a decoder, or none")
        if self.checkpoint is None and self.quoted is None:
            raise ValueError(f"row {self.label!r} has neither a run nor quoted figures")


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """A table of the report."""

    title: str
    suite: str
    metrics: tuple[str, ...]
    rows: tuple[RowConfig, ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if row.quoted is not None and len(row.quoted) != len(self.metrics):
                raise ValueError(
                    f"table {self.title!r}: row {row.label!r} quotes {len(row.quoted)} figures for "
                    f"{len(self.metrics)} metrics"
                )


@dataclass(frozen=True, kw_only=True)
class LineConfig:
    """A line of a curve: one checkpoint with decoders of different budgets."""

    label: str
    checkpoint: str
    decoders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CurveConfig:
    """A chart of the report: a metric against the forward passes that decoding took."""

    suite: str
    metric: str
    lines: tuple[LineConfig, ...]


@dataclass(frozen=True, kw_only=True)
class EvalRunConfig:
    """How to run; nothing here changes what comes out."""

    workers: int | None = None
    """Ray workers at once: the cluster's cores when none. 0 runs in this process, without Ray."""
    gpus_per_worker: float = 0.0
    threads: int = 1
    """Of each worker, where it has no GPU."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers must be 0 or more, got {self.workers}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")


@dataclass(frozen=True, kw_only=True)
class EvalRecipe:
    """From checkpoints to scores."""

    output: str
    """Folder of predictions and scores: any fsspec URI."""
    suites: dict[str, Any]
    """By name: a suite's kind and settings."""
    checkpoints: dict[str, str | tuple[str, ...]]
    """By name: a checkpoint, or several of one kind, say of three seeds."""
    decoders: dict[str, Decoder] = field(default_factory=lambda: {"rm": Decoder()})
    runs: tuple[RunSelection, ...] = (RunSelection(),)
    """What to run; every suite with every checkpoint and decoder when not given."""
    tables: tuple[TableConfig, ...] = ()
    """For the report; all runs of a suite in one table when none."""
    curves: tuple[CurveConfig, ...] = ()
    """For the report, besides those that suites make of single runs."""
    samples_per_chunk: int = 128
    """The unit of work and of resuming."""
    run: EvalRunConfig = field(default_factory=EvalRunConfig)

    def __post_init__(self) -> None:
        if self.samples_per_chunk < 1:
            raise ValueError(f"samples_per_chunk must be at least 1, got {self.samples_per_chunk}")
        known = {
            "suites": self.suites,
            "checkpoints": self.checkpoints,
            "decoders": self.decoders,
        }
        for kind, names in known.items():
            if not names:
                raise ValueError(f"{kind} is empty; name at least one")
            for selection in self.runs:
                _check_known(kind, getattr(selection, kind) or (), names)
        for curve in self.curves:
            _check_known("suites", (curve.suite,), self.suites)
            for line in curve.lines:
                _check_known("checkpoints", (line.checkpoint,), self.checkpoints)
                _check_known("decoders", line.decoders, self.decoders)
        for table in self.tables:
            _check_known("suites", (table.suite,), self.suites)
            for row in table.rows:
                if row.checkpoint is not None and row.decoder is not None:
                    _check_known("checkpoints", (row.checkpoint,), self.checkpoints)
                    _check_known("decoders", (row.decoder,), self.decoders)
        self.make_suites()

    def make_suites(self) -> dict[str, Suite]:
        """The suites by name."""
        return {name: make_suite(values, f"suites: {name}") for name, values in self.suites.items()}

    def members(self, checkpoint: str) -> tuple[str, ...]:
        """The folders of a named checkpoint, one or several."""
        found = self.checkpoints[checkpoint]
        return (found,) if isinstance(found, str) else found


def _check_known(kind: str, wanted: tuple[str, ...], known: dict[str, Any]) -> None:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"{unknown} is not among the recipe's {kind}: {list(known)}")
