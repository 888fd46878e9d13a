"""The dataclasses of a build recipe, and what the recipes of all data sets have in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from remask.models.checkpoints.shipped import lasting_name
from remask.models.ranges import Range, check_fields
from remask.pipeline.proposal_kinds import PROPOSALS, check_proposal
from remask.pipeline.runtime.places import PLACE, without_places
from remask.pipeline.runtime.storage import absolute
from remask.pipeline.sources.registry import AnySource
from remask.pipeline.trajectory import TrajectoryConfig


@dataclass(frozen=True, kw_only=True)
class ProposalConfig:
    """Where wrong tokens come from."""

    kind: str = "uniform"
    """A name in `PROPOSALS`. `uniform` draws any other id, `wrong_digit` another digit, `top_k` a
    frozen model's likeliest mistakes; `source` takes the tokens of an edit's source picture."""
    backbone: str | None = field(default=None, metadata=PLACE)
    """Checkpoint of the frozen model that `top_k` probes: a folder, or `hf:owner/name@revision`."""
    k: Annotated[int, Range("[1, inf)")] = 50
    """Candidates kept per position."""
    candidates: Literal["softmax", "uniform"] = "softmax"
    """Draw among the k candidates by the model's probabilities, or uniformly."""
    mode: Literal["clean", "masked"] = "clean"
    """Probe on the clean sequence, or with positions masked."""
    mask_rate: Annotated[float, Range("(0, 1]")] = 0.3
    """Share of the editable positions that one forward pass masks in mode `masked`; each position
    is masked in exactly one pass."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
        {
            "paper": {"kind": "top_k"},
            "released": {"kind": "top_k", "k": 8, "candidates": "uniform", "mode": "masked"},
        }
    )
    """`preset: released` follows the authors' data sets and project page; their released code has
    no builder."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in PROPOSALS:
            raise ValueError(f"kind must be one of {list(PROPOSALS)}, got {self.kind!r}")
        if (self.kind == "top_k") != (self.backbone is not None):
            raise ValueError("top_k needs a backbone to probe, and the other proposals take none")


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """How stages run; no setting here changes their output."""

    workers: Annotated[int | None, Range("[0, inf)")] = None
    """Ray workers that run at once; defaults to the cluster's cores. 0 runs the stages in this
    process, without Ray."""
    gpus_per_source: Annotated[float, Range("[0, inf)")] = 0.0
    """GPUs that each task of the source stage requests from Ray; image tokenisers use them."""
    tokens_per_batch: Annotated[int, Range("[1, inf)")] = 16384
    """Padded tokens in one forward pass of a model."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class RunConfig(StageRun):
    """How the stages of a build run."""

    gpus_per_probe: Annotated[float, Range("[0, inf)")] = 0.0
    """GPUs that each actor of the probe stage requests from Ray."""


@dataclass(frozen=True, kw_only=True)
class ShardsRecipe(ABC):
    """What every data set of shards has: clean sequences, in files that are units of work."""

    output: str = field(metadata=PLACE)
    """Folder of the data set, as a path or any fsspec URI."""
    source: AnySource
    """Where clean sequences come from."""
    seed: Annotated[int, Range("[0, 2^63)")] = 0
    replicas: Annotated[int, Range("[1, inf)")] = 1
    """Trajectories per training example."""
    examples_per_shard: Annotated[int, Range("[1, inf)")] = 16384
    """Examples in one unit of work. At a few megabytes per shard, Ray's overhead is small."""
    cache: str | None = field(default=None, metadata=PLACE)
    """Folder for examples and proposals, which several data sets may share; defaults to the
    output."""
    run: StageRun = field(default_factory=StageRun)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    @abstractmethod
    def backbone(self) -> str | None:
        """Checkpoint of the frozen model that the data set depends on; None if there is none."""

    @property
    def content(self) -> dict[str, Any]:
        """All settings that the output depends on: no paths, and nothing of `run`."""
        values = without_places(self)
        del values["run"]
        return values

    def with_absolute_paths(self) -> Self:
        """The same recipe with absolute paths, since workers run in other folders."""
        return replace(
            self,
            output=absolute(self.output),
            cache=absolute(self.cache),
            source=self.source.with_absolute_paths(),
        )


@dataclass(frozen=True, kw_only=True)
class BuildRecipe(ShardsRecipe):
    """From clean sequences to trajectory shards."""

    trajectories: TrajectoryConfig
    """The law of the trajectories."""
    proposal: ProposalConfig = field(default_factory=ProposalConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_proposal(self.proposal.kind, self.source.own_proposals())

    @property
    def backbone(self) -> str | None:
        return self.proposal.backbone

    def with_absolute_paths(self) -> Self:
        backbone = self.backbone and lasting_name(self.backbone)
        proposal = replace(self.proposal, backbone=backbone)
        return replace(super().with_absolute_paths(), proposal=proposal)
