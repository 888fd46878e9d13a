"""What a data set is built from: the dataclasses of a build recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from remask.pipeline.runtime.places import PLACE, without_places
from remask.pipeline.sources.countdown import CountdownSource
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource
from remask.pipeline.trajectory import TrajectoryConfig


@dataclass(frozen=True, kw_only=True)
class ProposalConfig:
    """Where wrong tokens come from."""

    kind: Literal["uniform", "wrong_digit", "top_k", "source"] = "uniform"
    """`source` takes the tokens that the source wants revised: of an image edit, its picture's."""
    backbone: str | None = field(default=None, metadata=PLACE)
    """Checkpoint of the frozen model that top_k probes."""
    k: int = 50
    """Candidates kept per position."""
    candidates: Literal["softmax", "uniform"] = "softmax"
    """Draw among the k by the model's probabilities, or all alike."""
    mode: Literal["clean", "masked"] = "clean"
    """Probe on the clean sequence, or with positions masked."""
    mask_rate: float = 0.3
    """Share of the editable positions masked in one pass of mode masked; every one has its turn."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {
            "paper": {"kind": "top_k"},
            "released": {"kind": "top_k", "k": 8, "candidates": "uniform", "mode": "masked"},
        }
    )
    """`preset: released` is as the authors' data sets and project page say; their code has no
    builder."""

    def __post_init__(self) -> None:
        if (self.kind == "top_k") != (self.backbone is not None):
            raise ValueError("top_k needs a backbone to probe, and the other proposals take none")
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"mask_rate must lie in (0, 1], got {self.mask_rate}")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How to run; nothing here changes what comes out."""

    workers: int | None = None
    """Ray tasks at once: the cluster's cores when none. 0 runs in this process, without Ray."""
    gpus_per_source: float = 0.0
    """GPUs that each task of the source stage asks Ray for: image tokenisers use them."""
    gpus_per_probe: float = 0.0
    """GPUs that each probing actor asks Ray for."""
    tokens_per_batch: int = 16384
    """Padded tokens in one forward pass of probing."""

    def __post_init__(self) -> None:
        if self.tokens_per_batch < 1:
            raise ValueError(f"tokens_per_batch must be at least 1, got {self.tokens_per_batch}")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"workers must be 0 or more, got {self.workers}")


@dataclass(frozen=True, kw_only=True)
class BuildRecipe:
    """From clean sequences to trajectory shards."""

    output: str = field(metadata=PLACE)
    """Folder of the data set: any fsspec URI."""
    source: SudokuSource | TextSource | CountdownSource | ImageEditSource
    trajectories: TrajectoryConfig
    proposal: ProposalConfig = field(default_factory=ProposalConfig)
    seed: int = 0
    replicas: int = 1
    """Trajectories drawn per training example."""
    examples_per_shard: int = 16384
    """The unit of work: a few megabytes keep Ray's own cost small."""
    cache: str | None = field(default=None, metadata=PLACE)
    """Folder for examples and proposals, to share between builds; the output when none."""
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must lie in 0 .. 2^63 - 1, got {self.seed}")
        if self.proposal.kind == "wrong_digit" and not isinstance(self.source, SudokuSource):
            raise ValueError("proposal.kind wrong_digit is for Sudoku; use uniform or top_k")
        revises = isinstance(self.source, ImageEditSource) and self.source.source_in == "canvas"
        if self.proposal.kind == "source" and not revises:
            raise ValueError(
                "proposal.kind source is for image edits with source_in: canvas; use another"
            )
        for name in ("replicas", "examples_per_shard"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def content(self) -> dict[str, Any]:
        """What the output depends on: all but where it goes and how it is run."""
        values = without_places(self)
        del values["run"]
        return values
