"""What a benchmark suite is: samples, predictions, scores, and what a report says about them.

A suite is one file in `suites/` and one line in `registry.py`. It is a frozen dataclass, read from
a recipe by its `kind`. A sample depends on the suite's settings and the sample's number alone, so
that any worker can make any of them. Scores depend on the predictions alone, which are a Parquet
table.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import pyarrow as pa

from remask.evaluation.decoder import Decoder
from remask.evaluation.player import PlayerSample
from remask.models import Backbone

Unit = Literal["share", "number"]
LEFT_OUT = b"left_out"
"""Metadata key of a prediction table: why samples have no row."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One figure with its 95 % interval; or a point of a curve, where `by` names what varies."""

    metric: str
    value: float
    low: float
    high: float
    count: int
    """Number of boards, cells or answers that the figure is a mean or a share of."""
    unit: Unit = "share"
    """A share is shown as a percentage."""
    better: Literal["higher", "lower", "neither"] = "higher"
    by: str | None = None
    at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Which figures of a suite say whether revision helped; they open the report."""

    metric: str
    """The share of samples that end right, or another main figure."""
    samples: str
    """What a sample is called, in the plural."""
    success: str
    """What is said of the share, like `are solved`; `82 % of 500 boards are solved`."""
    before: str | None = None
    """The same figure without revision, from the same decode. Defaults to none."""
    before_label: str = "as given"
    ceiling: str | None = None
    """The same figure of the best possible reviser. Defaults to none."""


class Suite(Protocol):
    """A benchmark. Implementations are frozen dataclasses, named in `registry.py`.

    An implementation with a `PRESETS` class variable takes the key `preset` in recipes
    (`models/config.py`); one with an `outcome` class variable, an `Outcome`, says which of its
    figures the report opens with. Without one, it is the first metric of the first table.
    """

    kind: ClassVar[str]
    """Name in recipes."""
    version: ClassVar[int]
    """Goes up when the same settings would give other samples or scores."""
    glossary: ClassVar[Mapping[str, str]]
    """What each metric means, in a sentence for readers of the report."""

    @property
    def num_samples(self) -> int: ...

    def identity(self) -> dict[str, Any]:
        """Everything that the samples depend on, as plain values. A file counts by its contents,
        not by its path."""
        ...

    def with_absolute_paths(self) -> "Suite":
        """The same suite for workers that run in another folder."""
        ...

    def check(self, backbone: Backbone) -> None:
        """Raise ValueError if this model cannot take these samples; weights may be absent."""
        ...

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        """Decode some samples: a row each, with `sample_id`, `forward_passes` and what `score`
        needs. How samples are cut into ranges changes no row. Samples that cannot be used have no
        row and are named by `with_left_out`."""
        ...

    def score(self, predictions: pa.Table) -> list[Score]:
        """All figures of a run, from the predictions of all its samples."""
        ...

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """A few telling samples, as plain values, for the report."""
        ...

    @classmethod
    def player_sample(cls, sample: dict[str, Any]) -> PlayerSample | None:
        """A sample of `showcase`, read back from disk, as the report's player takes it. None if
        the player cannot show samples of this suite.

        Raises:
            KeyError, TypeError, ValueError: The sample is not what `showcase` wrote.
        """
        ...


@runtime_checkable
class AdaptsDecoders(Protocol):
    """A suite that decides some of the decoder's settings."""

    def adapt(self, decoder: Decoder) -> Decoder:
        """The decoder with every setting that it leaves to the suite filled in, because the
        predictions depend on them; ValueError if it cannot decode these samples."""
        ...


def with_left_out(predictions: pa.Table, reasons: Sequence[str]) -> pa.Table:
    """Predictions that say which samples they lack, and why."""
    return predictions.replace_schema_metadata({LEFT_OUT: json.dumps(list(reasons))})


def left_out(predictions: pa.Table) -> list[str]:
    """The reasons stored by `with_left_out`."""
    return json.loads((predictions.schema.metadata or {}).get(LEFT_OUT, b"[]"))
