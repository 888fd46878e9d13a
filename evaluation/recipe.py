"""Evaluation recipes: suites, checkpoints and decoders, and what the report shows of them."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from remask.evaluation.decoder import Decoder
from remask.evaluation.registry import make_suite
from remask.evaluation.suite import Suite
from remask.models.ranges import Range, check_fields


@dataclass(frozen=True, kw_only=True)
class RunSelection:
    """A subset of suites × checkpoints × decoders. Each field defaults to all of the recipe's."""

    suites: tuple[str, ...] | None = None
    """Names of suites."""
    checkpoints: tuple[str, ...] | None = None
    """Names of checkpoints."""
    decoders: tuple[str, ...] | None = None
    """Names of decoders."""


@dataclass(frozen=True, kw_only=True)
class RowConfig:
    """A row of a table: a run of ours, figures quoted from elsewhere, or both."""

    label: str
    """What the row is called."""
    checkpoint: str | None = None
    """Name of a checkpoint."""
    decoder: str | None = None
    """Name of a decoder."""
    quoted: tuple[float | None, ...] | None = None
    """Published figures, one per metric, as printed; shares are percentages."""

    def __post_init__(self) -> None:
        if (self.checkpoint is None) != (self.decoder is None):
            raise ValueError(f"row {self.label!r} needs both a checkpoint and a decoder, or none")
        if self.checkpoint is None and self.quoted is None:
            raise ValueError(f"row {self.label!r} has neither a run nor quoted figures")


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """A table of the report."""

    title: str
    """What the table is called."""
    suite: str
    """Name of a suite."""
    metrics: tuple[str, ...]
    """Metrics of the suite, a column each."""
    rows: tuple[RowConfig, ...]
    """Rows of the table, from top to bottom."""
    note: str = ""
    """A sentence below the table."""

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
    """What the line is called."""
    checkpoint: str
    """Name of a checkpoint."""
    decoders: tuple[str, ...]
    """Names of decoders, a point each."""


@dataclass(frozen=True, kw_only=True)
class CurveConfig:
    """A chart of the report: a metric against the forward passes that decoding took."""

    suite: str
    """Name of a suite."""
    metric: str
    """The metric of the vertical axis."""
    lines: tuple[LineConfig, ...]
    """Lines of the chart."""


@dataclass(frozen=True, kw_only=True)
class HeadlineConfig:
    """The figure that opens the report: did revision help?"""

    suite: str
    """Name of the suite whose figure it is."""
    metric: str | None = None
    """Defaults to the suite's main figure."""
    rows: tuple[RowConfig, ...] = ()
    """Runs to show, in the order of the bars; the last one that revises what it is given is
    compared with the others. Quoted figures are one each. Defaults to the rows of the first table
    of this suite."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if row.quoted is not None and len(row.quoted) != 1:
                raise ValueError(
                    f"headline: row {row.label!r} quotes {len(row.quoted)} figures for one metric"
                )


@dataclass(frozen=True, kw_only=True)
class EvalRunConfig:
    """How to run; nothing here has an effect on the results."""

    workers: Annotated[int | None, Range("[0, inf)")] = None
    """Number of Ray workers. Defaults to the cluster's cores; 0 runs in this process, without
    Ray."""
    gpus_per_worker: Annotated[float, Range("[0, inf)")] = 0.0
    """GPUs that each worker asks Ray for; 0 decodes on the CPU."""
    threads: Annotated[int, Range("[1, inf)")] = 1
    """CPU threads of each worker."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class EvalRecipe:
    """From checkpoints to scores."""

    title: str = ""
    """Heading of the report. Defaults to the first sentence of the recipe's opening comment, or to
    the file's name."""
    output: str
    """Folder of predictions and scores: any fsspec URI."""
    suites: dict[str, Any]
    """Kind and settings of each suite, by name."""
    checkpoints: dict[str, str | tuple[str, ...]]
    """Checkpoints by name; a name may have several members, such as three seeds."""
    decoders: dict[str, Decoder] = field(default_factory=lambda: {"rm": Decoder()})
    """Decoders by name. Defaults to one, `rm`, with the revision rule as printed."""
    runs: tuple[RunSelection, ...] = (RunSelection(),)
    """Combinations to run. Defaults to every suite with every checkpoint and decoder."""
    headline: HeadlineConfig | None = None
    """What opens the report. Defaults to the first table's suite and rows."""
    tables: tuple[TableConfig, ...] = ()
    """Tables of the report. Defaults to one table per suite with all its runs."""
    curves: tuple[CurveConfig, ...] = ()
    """Charts of the report, in addition to those that suites make from single runs."""
    samples_per_chunk: Annotated[int, Range("[1, inf)")] = 128
    """Samples of a chunk, the unit of work and of resuming."""
    run: EvalRunConfig = field(default_factory=EvalRunConfig)

    def __post_init__(self) -> None:
        check_fields(self)
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
        headlines = () if self.headline is None else (self.headline,)
        for shown in (*headlines, *self.tables):
            _check_known("suites", (shown.suite,), self.suites)
            for row in shown.rows:
                if row.checkpoint is not None and row.decoder is not None:
                    _check_known("checkpoints", (row.checkpoint,), self.checkpoints)
                    _check_known("decoders", (row.decoder,), self.decoders)
        self.make_suites()

    def make_suites(self) -> dict[str, Suite]:
        """The suites by name."""
        return {name: make_suite(values, f"suites: {name}") for name, values in self.suites.items()}

    def members(self, checkpoint: str) -> tuple[str, ...]:
        """The folders of a named checkpoint, one per member."""
        folders = self.checkpoints[checkpoint]
        return (folders,) if isinstance(folders, str) else folders


def _check_known(kind: str, names: tuple[str, ...], known: dict[str, Any]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{unknown} is not among the recipe's {kind}: {list(known)}")
