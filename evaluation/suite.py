"""What a benchmark suite is: samples, predictions, scores. A suite is one file in `suites/`.

A suite is a frozen dataclass, read from a recipe by its `kind`. Its samples are functions of its
settings and their number alone, so that any worker can make any of them; all that it scores is in
the predictions, which are a Parquet table.
"""

import importlib
import json
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from remask.evaluation.decoder import Decoder
from remask.evaluation.suites.presets import with_preset
from remask.models import Backbone
from remask.models.config import from_mapping

Unit = Literal["share", "number"]
LEFT_OUT = b"left_out"
"""Key of a prediction table's metadata."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One figure with its 95 % interval; or a point of a curve, where `by` names what varies."""

    metric: str
    value: float
    low: float
    high: float
    count: int
    """What it is a mean or a share of: boards, cells, answers."""
    unit: Unit = "share"
    """A share is shown as a percentage."""
    better: Literal["higher", "lower", "neither"] = "higher"
    by: str | None = None
    at: float | None = None


class Suite(Protocol):
    """A benchmark. Implementations are frozen dataclasses that `register` themselves."""

    kind: ClassVar[str]
    """Name in recipes."""
    version: ClassVar[int]
    """Goes up when the same settings would give other samples or scores."""

    @property
    def num_samples(self) -> int: ...

    def identity(self) -> dict[str, Any]:
        """What the samples depend on, as plain values: of a file what it holds, not where it is."""
        ...

    def with_absolute_paths(self) -> "Suite":
        """The same, for workers that run elsewhere."""
        ...

    def check(self, backbone: Backbone) -> None:
        """Raise ValueError if this model cannot take these samples; weights may be absent."""
        ...

    def predict(self, backbone: Backbone, samples: range, decoder: Decoder) -> pa.Table:
        """Decode some samples: a row each, with `sample_id`, `forward_passes` and what `score`
        needs. The same for every way of cutting the samples up. Samples that cannot be used have
        no row and are named by `with_left_out`."""
        ...

    def score(self, predictions: pa.Table) -> list[Score]:
        """All figures of a run, from the predictions of all its samples."""
        ...

    def showcase(self, predictions: pa.Table) -> list[dict[str, Any]]:
        """A few telling samples, as plain values, for the report's player."""
        ...


@runtime_checkable
class AdaptsDecoders(Protocol):
    """A suite that has a say in how it is decoded."""

    def adapt(self, decoder: Decoder) -> Decoder:
        """A decoder with all that it leaves to the suite filled in, as predictions depend on it;
        ValueError if it cannot decode these samples."""
        ...


def with_left_out(predictions: pa.Table, reasons: Sequence[str]) -> pa.Table:
    """Predictions that say which samples they lack, and why."""
    return predictions.replace_schema_metadata({LEFT_OUT: json.dumps(list(reasons))})


def left_out(predictions: pa.Table) -> list[str]:
    """What `with_left_out` was told."""
    return json.loads((predictions.schema.metadata or {}).get(LEFT_OUT, b"[]"))


SUITES: dict[str, type] = {}
S = TypeVar("S", bound=type)


def register(suite: S) -> S:
    """Class decorator: makes a suite known by its `kind`."""
    SUITES[suite.kind] = suite
    return suite


def make_suite(values: Any, where: str) -> Suite:
    """The suite of a recipe's section, `kind` and settings."""
    from remask.evaluation import suites as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    if not isinstance(values, Mapping):
        raise ValueError(f"{where}: expected keys and values, got {values!r}")
    settings = dict(values)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in SUITES:
        raise ValueError(f"{where}: kind must be one of {sorted(SUITES)}, got {kind!r}")
    return from_mapping(SUITES[kind], with_preset(kind, settings, where), where)
