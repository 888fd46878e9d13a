"""The recipe of a training run."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from remask.models import HistoryConfig
from remask.models.backbones.named_sizes import without_size
from remask.models.checkpoints.hub import pinned
from remask.models.checkpoints.hub_name import is_hub_name
from remask.models.ranges import Range, check_fields
from remask.pipeline.rollout_recipe import RolloutRecipe
from remask.training.objective import ObjectiveConfig, StateWeights
from remask.training.optimizer import OptimizerConfig
from remask.training.rounds import RoundsConfig, model_folder
from remask.training.shares import ShardShare, check_shares, rows_per_set

_AT_LEAST_1 = Range("[1, inf)")
_ROW_COUNT = Range("[1, 2^24]")


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Low-rank adapters, through peft; the base model is frozen."""

    rank: Annotated[int, _AT_LEAST_1] = 16
    """Rank of the adapters."""
    alpha: Annotated[float, Range("(0, inf)")] = 32.0
    """The adapters' output is multiplied by alpha / rank."""
    dropout: Annotated[float, Range("[0, 1)")] = 0.0
    """Share of the adapters' inputs that are dropped in training."""

    def __post_init__(self) -> None:
        check_fields(self, "lora.")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How DeepSpeed runs the step."""

    precision: Literal["fp32", "mixed", "bf16"] = "fp32"
    """`mixed` keeps weights and optimizer state in fp32 and runs matrix products in bf16, about 1.5
    times as fast on CPUs with bf16 instructions and slower on others; `bf16` stores weights in bf16
    too."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """What ZeRO partitions among ranks: 1 the optimizer state, 2 also gradients, 3 also weights."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What is kept in host memory: the optimizer state (stages 1 to 3), or also weights (stage
    3)."""
    micro_batch_size: Annotated[int | None, _AT_LEAST_1] = None
    """Rows per forward pass of a rank; gradients accumulate over a batch. Defaults to the rank's
    whole part of the batch."""
    recompute: bool = False
    """Activation checkpointing: keep only the input of each block and recompute the rest."""
    clip: Annotated[float, Range("[0, inf)")] = 1.0
    """Largest norm of the gradient; 0 turns clipping off. Muon under ZeRO 1 to 3 never clips."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """Further keys of DeepSpeed's own config, which override ours."""

    def __post_init__(self) -> None:
        check_fields(self, "engine.")
        reserved = sorted(
            {"bf16", "fp16", "optimizer", "scheduler", "gradient_clipping"} & {*self.deepspeed}
        )
        reserved += sorted(x for x in self.deepspeed if "batch_size" in x or "accumulation" in x)
        zero = self.deepspeed.get("zero_optimization")
        reserved += ["zero_optimization.stage"] * (isinstance(zero, dict) and "stage" in zero)
        if reserved:
            raise ValueError(
                f"engine.deepspeed: {reserved} follow from the recipe's own keys; set those instead"
            )
        if self.precision == "bf16" and self.zero_stage == 0:
            raise ValueError("engine.precision bf16 needs zero_stage 1 or more, got 0")
        min_stage = {"none": 0, "optimizer": 1, "all": 3}[self.offload]
        if self.zero_stage < min_stage:
            raise ValueError(
                f"engine.offload {self.offload} needs zero_stage {min_stage} or more, got "
                f"{self.zero_stage}"
            )


@dataclass(frozen=True, kw_only=True)
class SpikeConfig:
    """Skip micro-batches whose loss jumps."""

    factor: Annotated[float, Range("(1, inf)")] = 3.0
    """A loss above this multiple of the median of recent losses is a spike."""
    window: Annotated[int, _AT_LEAST_1] = 50
    """Number of recent micro-batches; nothing is skipped before that many have been seen."""

    def __post_init__(self) -> None:
        check_fields(self, "spikes.")


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """When to save and what to keep; has no effect on what is learned."""

    every: Annotated[int, _AT_LEAST_1] = 1000
    """Steps between checkpoints; the last step is always saved."""
    keep: Annotated[int, _AT_LEAST_1] = 2
    """Number of newest checkpoints to keep, besides the best."""

    def __post_init__(self) -> None:
        check_fields(self, "save.")


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """A small decode of held-out rows at intervals, and before every checkpoint."""

    every: Annotated[int, Range("[0, inf)")] = 1000
    """Steps between decodes; 0 turns them off."""
    rows: Annotated[int, _AT_LEAST_1] = 256
    """Number of held-out rows to decode."""
    max_steps: Annotated[int, _AT_LEAST_1] = 16
    """Decoding steps. With `sft` and `pretrain` the positions that change start masked."""

    def __post_init__(self) -> None:
        check_fields(self, "held_out.")


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Where progress is logged, besides OUTPUT/log.jsonl."""

    every: Annotated[int, _AT_LEAST_1] = 10
    """Steps that one line of the log summarises."""
    tensorboard: bool = True
    """Write curves to OUTPUT/tensorboard."""
    wandb: str | None = None
    """Weights & Biases project; needs wandb to be installed."""

    def __post_init__(self) -> None:
        check_fields(self, "log.")


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """From trajectory shards to a checkpoint."""

    output: str
    """Folder of the run, on a file system that all ranks share."""
    shards: str | tuple[ShardShare, ...] | None = None
    """A data set that `remask build` wrote, by any fsspec URI; or several, each with its share of
    every batch: [{uri: runs/a/data, share: 0.5}, {uri: runs/b/data, share: 0.5}]. Held-out rows
    come from the first of them that has any. Only a run whose batches come from `rounds` alone
    needs none."""
    rounds: RoundsConfig | None = None
    """The model's own decodes as data, made anew in every round. Defaults to none."""
    model: dict[str, Any] | None = None
    """A new backbone, by kind and config, {kind: sudoku, side: 9}, or by a size, {kind: llada,
    size: tiny}, beside which other keys take precedence. Vocabulary size and MASK come from
    `shards` where they are left out."""
    start: str | None = None
    """A checkpoint to start from instead: a folder, a shipped name, or `hf:owner/name@revision`."""
    history: HistoryConfig | None = None
    """History Reference. Defaults to the checkpoint's settings, or `HistoryConfig`'s defaults for a
    new backbone. `sft` and `pretrain` train without history."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lora: LoraConfig | None = None
    """Train low-rank adapters instead of all weights. Defaults to all weights."""
    steps: Annotated[int | None, _AT_LEAST_1] = None
    """Total number of updates. A run can be extended later if the learning rates of the steps that
    it has done stay the same, as with `decay: constant`."""
    epochs: Annotated[float | None, Range("(0, inf)")] = None
    """The same as passes over the data, with several sets over the sum of their rows. Give either
    steps or epochs."""
    batch_size: Annotated[int, _ROW_COUNT] = 64
    """Rows per update, over all ranks."""
    shuffle_buffer: Annotated[int, _ROW_COUNT] = 65536
    """Rows shuffled together."""
    seed: Annotated[int, Range("[0, 2^63)")] = 0
    spikes: SpikeConfig | None = None
    """Skip micro-batches whose loss jumps. Defaults to none."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    held_out: HeldOutConfig = field(default_factory=HeldOutConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rounds is None or self.shard_sets:
            check_shares(self.shard_sets, self.batch_size)
        if self.rounds is not None:
            self._check_rounds(self.rounds)
        if (self.model is None) == (self.start is None):
            raise ValueError("give either model, for a new backbone, or start, a checkpoint folder")
        if self.model is not None:
            without_size(self.model)  # checks kind and size
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        if "://" in self.output or is_hub_name(self.output):
            raise ValueError(f"output must be a folder on a file system, got {self.output}")
        if self.lora and not self.start:
            raise ValueError("lora needs a checkpoint to start from")

    def with_pinned_start(self) -> "TrainRecipe":
        """The same recipe, in which a checkpoint on the hub is named with its commit."""
        return dataclasses.replace(self, start=self.start and pinned(self.start, "model"))

    @property
    def shard_sets(self) -> tuple[ShardShare, ...]:
        """The data sets with their shares of a batch; a single one has all of it."""
        if isinstance(self.shards, str):
            return (ShardShare(uri=self.shards, share=1.0),)
        return tuple(self.shards or ())

    @property
    def rows_per_set(self) -> tuple[int, ...]:
        """Rows of every batch that come from each data set and, with rounds, last from the round's
        decodes."""
        return tuple(rows_per_set(self._batch_shares, self.batch_size))

    @property
    def rounds_folder(self) -> Path:
        """Folder of the models and data sets of all rounds."""
        return Path(self.output).absolute() / "rounds"

    @property
    def num_rounds(self) -> int:
        return self.steps // self.rounds.every if self.rounds and self.steps else 0

    def round_recipe(self, number: int) -> RolloutRecipe:
        """The rollout recipe of a round's data set."""
        if self.rounds is None or self.start is None:
            raise ValueError("the recipe has no rounds")
        model, folder = self.rounds.model_of(number), self.rounds_folder
        checkpoint = str(model_folder(folder, model)) if model else self.start
        return self.rounds.rollout_recipe(str(folder), checkpoint, number)

    @property
    def _batch_shares(self) -> tuple[ShardShare, ...]:
        """Shares of every batch, with that of the round's decodes last."""
        if self.rounds is None:
            return self.shard_sets
        rest = 1 - self.rounds.share
        fixed = (dataclasses.replace(x, share=x.share * rest) for x in self.shard_sets)
        return (*fixed, ShardShare(uri=str(self.rounds_folder), share=self.rounds.share))

    def _check_rounds(self, rounds: RoundsConfig) -> None:
        if self.shard_sets and rounds.share == 1:
            raise ValueError("rounds.share is 1, which leaves no row to shards; leave shards out")
        if not self.shard_sets and rounds.share < 1:
            raise ValueError(
                f"rounds.share is {rounds.share:g}; name shards for the rest of a batch"
            )
        check_shares(self._batch_shares, self.batch_size)
        if self.start is None:
            raise ValueError("rounds needs start, a checkpoint that decodes the first round")
        if self.steps is None or self.steps % rounds.every:
            raise ValueError(
                f"rounds needs steps, a multiple of rounds.every {rounds.every}, got {self.steps}"
            )

    def num_steps(self, num_rows: int) -> int:
        """Total number of updates on a data set of `num_rows` rows."""
        if self.steps is not None:
            return self.steps
        return max(1, math.ceil((self.epochs or 0) * num_rows / self.batch_size))

    @property
    def content(self) -> dict[str, Any]:
        """The settings that the result depends on: all but paths, saving and logging."""
        values = dataclasses.asdict(self)
        for name in ("output", "shards", "start", "save", "held_out", "log"):
            del values[name]
        del values["engine"]["micro_batch_size"], values["engine"]["recompute"]
        if self.rounds is None:
            del values["rounds"]  # runs from before there were any go on
        else:
            values["rounds"] = self.rounds.content
        if self.objective.state_weights == StateWeights():
            del values["objective"]["state_weights"]  # runs from before there were any go on
        return values
