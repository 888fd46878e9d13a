"""The dataclasses of a build recipe: what a data set is built from, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from remask.models.ranges import Range, check_fields
from remask.pipeline.proposal_kinds import PROPOSALS, check_proposal
from remask.pipeline.runtime.places import PLACE, without_places
from remask.pipeline.sources.registry import AnySource
from remask.pipeline.trajectory import TrajectoryConfig


@dataclass(frozen=True, kw_only=True)
class ProposalConfig:
    """Where wrong tokens come from."""

    kind: str = "uniform"
    """A name in `PROPOSALS`. `uniform` draws any other id, `wrong_digit` another digit, `top_k` a
    frozen model's likeliest mistakes; `source` takes the tokens of an edit's source picture."""
    backbone: str | None = field(default=None, metadata=PLACE)
    """Checkpoint of the frozen model that `top_k` probes."""
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
class RunConfig:
    """How the stages run; no setting here changes the output."""

    workers: Annotated[int | None, Range("[0, inf)")] = None
    """Ray tasks that run at once; defaults to the cluster's cores. 0 runs the stages in this
    process, without Ray."""
    gpus_per_source: Annotated[float, Range("[0, inf)")] = 0.0
    """GPUs that each task of the source stage requests from Ray; image tokenisers use them."""
    gpus_per_probe: Annotated[float, Range("[0, inf)")] = 0.0
    """GPUs that each actor of the probe stage requests from Ray."""
    tokens_per_batch: Annotated[int, Range("[1, inf)")] = 16384
    """Padded tokens in one forward pass of the probe stage."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class BuildRecipe:
    """From clean sequences to trajectory shards."""

    output: str = field(metadata=PLACE)
    """Folder of the data set, as a path or any fsspec URI."""
    source: AnySource
    trajectories: TrajectoryConfig
    proposal: ProposalConfig = field(default_factory=ProposalConfig)
    seed: Annotated[int, Range("[0, 2^63)")] = 0
    replicas: Annotated[int, Range("[1, inf)")] = 1
    """Trajectories drawn per training example."""
    examples_per_shard: Annotated[int, Range("[1, inf)")] = 16384
    """Examples in one unit of work. At a few megabytes per shard, Ray's overhead is small."""
    cache: str | None = field(default=None, metadata=PLACE)
    """Folder for examples and proposals, which several builds may share; defaults to the output."""
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        check_proposal(self.proposal.kind, self.source.own_proposals())

    @property
    def content(self) -> dict[str, Any]:
        """All settings that the output depends on: no paths, and nothing of `run`."""
        values = without_places(self)
        del values["run"]
        return values
