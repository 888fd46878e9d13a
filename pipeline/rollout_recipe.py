"""The dataclasses of a rollout recipe: which checkpoint decodes what, and with which decoders."""

import itertools
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal, Self

from remask.models import RevisionPolicy, Sampling
from remask.models.checkpoints.shipped import lasting_name
from remask.models.ranges import Range, check_fields
from remask.pipeline.checkers import Checker
from remask.pipeline.format.rows import MAX_SEGMENTS
from remask.pipeline.recipe import ShardsRecipe, StageRun
from remask.pipeline.runtime.places import PLACE


@dataclass(frozen=True, kw_only=True)
class DecodeSpread:
    """Settings of the revision rule; each row draws one value of each, uniformly."""

    steps: Annotated[tuple[int, ...], Range("[1, 2^15]")] = (3, 5, 7, 11)
    """Maximum number of steps of a decode, not counting the closing one."""
    reveal_within: Annotated[tuple[float, ...], Range("(0, 1]")] = (0.3, 0.5, 0.8)
    """Share of the steps over which the reveals are spread."""
    margin: Annotated[tuple[float, ...], Range("(-inf, inf)", "it is a number of nats")] = (
        0.0,
        -1.0,
        -3.0,
    )
    """Nats by which MASK must be likelier than a token for the token to be re-masked."""
    temperature: Annotated[tuple[float, ...], Range("[0, inf)")] = (0.0, 0.5)
    """Temperature of the revealed tokens; 0 takes the most likely one."""
    patience: Annotated[int, Range("[1, inf)")] = 2
    """Number of steps without an action after which a decode ends."""

    def __post_init__(self) -> None:
        check_fields(self, "decoders.")
        for spread in fields(self):
            if getattr(self, spread.name) == ():
                raise ValueError(f"decoders.{spread.name} must have a value to draw, got none")

    @property
    def horizon(self) -> int:
        """T: the target follows the last state, which the closing step may have made."""
        return max(self.steps) + 2

    def decoders(self) -> list[tuple[int, RevisionPolicy]]:
        """All combinations of the values, as the maximum number of steps and the policy."""
        return [
            (
                steps,
                RevisionPolicy(
                    reveal_within=reveal_within,
                    margin=margin,
                    patience=self.patience,
                    sampling=Sampling(temperature=temperature),
                ),
            )
            for steps, reveal_within, margin, temperature in itertools.product(
                self.steps, self.reveal_within, self.margin, self.temperature
            )
        ]


@dataclass(frozen=True, kw_only=True)
class RolloutRun(StageRun):
    """How a rollout runs."""

    gpus_per_rollout: Annotated[float, Range("[0, inf)")] = 0.0
    """GPUs that each actor, which holds the checkpoint, requests from Ray."""


@dataclass(frozen=True, kw_only=True)
class RolloutRecipe(ShardsRecipe):
    """From a checkpoint's decodes of clean sequences to trajectory shards."""

    checkpoint: str = field(metadata=PLACE)
    """The model that decodes: a folder, a shipped name, or `hf:owner/name@revision`."""
    decoders: DecodeSpread = field(default_factory=DecodeSpread)
    start: Literal["blank", "given"] = "blank"
    """`blank` decodes from MASK at every editable position, `given` from the tokens that the source
    wants revised."""
    targets: Literal["given", "nearest_right"] = "given"
    """`given` labels every decode by the source's target. `nearest_right`, for sources with a
    checker, labels a decode that ends right by its own end, and any other by the known right answer
    with the fewest changes to the state looked at."""
    looks: Annotated[int, Range("[1, 64]")] = 1
    """Rows made of each decode, each looked at after a number of steps of its own; a look costs no
    further forward pass."""
    max_segments: Annotated[int, Range(f"[2, {MAX_SEGMENTS}]")] = 16
    """Limit on the runs of equal tokens that a position's past and target may have; of a longer
    past, the oldest runs are dropped."""
    precision: Literal["fp32", "mixed"] = "fp32"
    """`mixed` decodes with matrix products in bf16, as training with `precision: mixed` does: about
    three times as fast on CPUs with bf16 instructions."""
    span: Annotated[tuple[int, int] | None, Range("[0, inf)")] = None
    """Index of the first training shard to decode, and how many. Counting goes on after the last
    shard with another decode of the first one. Defaults to every shard of every split."""
    run: RolloutRun = field(default_factory=RolloutRun)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.span is not None and self.span[1] < 1:
            raise ValueError(f"span must name at least one shard, got {list(self.span)}")
        if self.span is not None and self.replicas > 1:
            raise ValueError(f"span counts replicas itself; set replicas to 1, got {self.replicas}")
        if self.start == "given" and "source" not in self.source.own_proposals():
            raise ValueError(
                f"source.kind {self.source.kind} has no tokens to start from; set start: blank"
            )
        if self.targets == "nearest_right" and self.checker is None:
            raise ValueError(
                f"source.kind {self.source.kind} has no checker that knows right answers besides "
                "the given ones; set targets: given"
            )

    @property
    def checker(self) -> Checker | None:
        """What finds the targets; None for the given ones."""
        return self.source.checker() if self.targets == "nearest_right" else None

    @property
    def backbone(self) -> str:
        return self.checkpoint

    def with_absolute_paths(self) -> Self:
        return replace(super().with_absolute_paths(), checkpoint=lasting_name(self.checkpoint))
