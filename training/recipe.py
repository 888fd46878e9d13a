"""What a training run is: the recipe's dataclasses."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from remask.models import HistoryConfig
from remask.training.objective import ObjectiveConfig
from remask.training.optimizer import OptimizerConfig

MAX_ROWS = 1 << 24
"""Of a batch, or shuffled together."""


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Train small matrices beside the frozen ones, through peft."""

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.rank < 1 or not 0 < self.alpha < math.inf or not 0 <= self.dropout < 1:
            raise ValueError(
                "lora needs rank of at least 1, alpha above 0 and dropout in [0, 1), got "
                f"{self.rank}, {self.alpha}, {self.dropout}"
            )


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How DeepSpeed runs the step."""

    precision: Literal["fp32", "mixed", "bf16"] = "fp32"
    """`mixed` keeps weights and optimiser in fp32 and multiplies matrices in bf16, about 1.5 times
    as fast on CPUs with bf16 instructions and slower on others; `bf16` stores weights so too."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """What is divided among ranks: 1 optimiser states, 2 gradients too, 3 weights too."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What lies in host memory: the optimiser (stage 1 to 3), or the weights too (stage 3)."""
    micro_batch_size: int | None = None
    """Rows a rank takes at once; gradients add up over a batch. Its whole part when none."""
    recompute: bool = False
    """Activation checkpointing: keep only each block's input and compute the rest again."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 does not clip. Muon under ZeRO 1 to 3 does not."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """Further keys for DeepSpeed's own config, put over ours."""

    def __post_init__(self) -> None:
        taken = sorted(
            {"bf16", "fp16", "optimizer", "scheduler", "gradient_clipping"} & {*self.deepspeed}
        )
        taken += sorted(x for x in self.deepspeed if "batch_size" in x or "accumulation" in x)
        taken += ["zero_optimization.stage"] * ("stage" in self._zero)
        if taken:
            raise ValueError(f"engine.deepspeed: {taken} follow from the recipe's own keys")
        if self.precision == "bf16" and self.zero_stage == 0:
            raise ValueError("engine.precision bf16 needs zero_stage 1 or more, got 0")
        if self.offload != "none" and self.zero_stage < (3 if self.offload == "all" else 1):
            least = 3 if self.offload == "all" else 1
            raise ValueError(
                f"engine.offload {self.offload} needs zero_stage {least} or more, got "
                f"{self.zero_stage}"
            )
        if self.micro_batch_size is not None and self.micro_batch_size < 1:
            raise ValueError(
                f"engine.micro_batch_size must be at least 1, got {self.micro_batch_size}"
            )
        if not 0 <= self.clip < math.inf:
            raise ValueError(f"engine.clip must be 0 or more, got {self.clip}")

    @property
    def _zero(self) -> dict[str, Any]:
        found = self.deepspeed.get("zero_optimization", {})
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, kw_only=True)
class SpikeConfig:
    """Leave out micro-batches whose loss jumps."""

    factor: float = 3.0
    """A loss above this many times the median of the recent ones is a spike."""
    window: int = 50
    """Recent micro-batches; until there are as many, nothing is left out."""

    def __post_init__(self) -> None:
        if not 1 < self.factor < math.inf or self.window < 1:
            raise ValueError(
                f"spikes needs factor above 1 and window of at least 1, got {self.factor}, "
                f"{self.window}"
            )


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """When to save, and what to keep. Changes nothing that is learned."""

    every: int = 1000
    """Steps between checkpoints; the last step has one too."""
    keep: int = 2
    """Newest checkpoints kept, besides the best."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.keep < 1:
            raise ValueError(
                f"save.every and save.keep must be at least 1, got {self.every}, {self.keep}"
            )


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """A small decode of held-out rows now and then, and before every checkpoint."""

    every: int = 1000
    """Steps between decodes; 0 decodes nothing."""
    rows: int = 256
    max_steps: int = 16
    """Decoding steps. `sft` and `pretrain` are given which positions change, and fill them in."""

    def __post_init__(self) -> None:
        if self.every < 0 or self.rows < 1 or self.max_steps < 1:
            raise ValueError(
                "held_out needs every of at least 0, rows and max_steps of at least 1, got "
                f"{self.every}, {self.rows}, {self.max_steps}"
            )


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Where progress is written, besides OUTPUT/log.jsonl."""

    every: int = 10
    """Steps that a line of the log sums up."""
    tensorboard: bool = True
    wandb: str | None = None
    """Weights & Biases project, if that is installed."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"log.every must be at least 1, got {self.every}")


@dataclass(frozen=True, kw_only=True)
class TrainRecipe:
    """From trajectory shards to a checkpoint."""

    shards: str
    """A data set that `remask build` wrote: any fsspec URI."""
    output: str
    """Folder of the run, on a file system that all ranks see."""
    model: dict[str, Any] | None = None
    """A new backbone, by kind and config: {kind: sudoku, side: 9}."""
    start: str | None = None
    """A checkpoint folder to start from instead."""
    history: HistoryConfig | None = None
    """History Reference; as the checkpoint has it, or the defaults, when none. `sft` and `pretrain`
    see one state only."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    lora: LoraConfig | None = None
    steps: int | None = None
    """Updates in all. A run may be given more later if the learning rates of those that it has done
    stay the same, as with `decay: constant`."""
    epochs: float | None = None
    """The same as passes over the data. One of the two is needed."""
    batch_size: int = 64
    """Rows of an update, over all ranks."""
    shuffle_buffer: int = 65536
    """Rows shuffled together."""
    seed: int = 0
    spikes: SpikeConfig | None = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    held_out: HeldOutConfig = field(default_factory=HeldOutConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        if (self.model is None) == (self.start is None):
            raise ValueError("give either a model to begin anew or a checkpoint to start from")
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        if (self.steps is not None and self.steps < 1) or not 0 < (self.epochs or 1) < math.inf:
            raise ValueError(
                f"steps must be at least 1 and epochs above 0, got {self.steps or self.epochs}"
            )
        for name in ("batch_size", "shuffle_buffer"):
            if not 1 <= getattr(self, name) <= MAX_ROWS:
                raise ValueError(f"{name} must lie in 1 .. {MAX_ROWS}, got {getattr(self, name)}")
        if not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed must lie in 0 .. 2^63 - 1, got {self.seed}")
        if "://" in self.output:
            raise ValueError(f"output must be a folder on a file system, got {self.output}")
        if self.lora and not self.start:
            raise ValueError("lora needs a checkpoint to start from")

    def num_steps(self, num_rows: int) -> int:
        """Updates in all, on a data set of so many rows."""
        if self.steps is not None:
            return self.steps
        return max(1, math.ceil((self.epochs or 0) * num_rows / self.batch_size))

    @property
    def content(self) -> dict[str, Any]:
        """What the outcome depends on: all but where it goes and how it is watched."""
        values = dataclasses.asdict(self)
        for name in ("output", "shards", "start", "save", "held_out", "log"):
            del values[name]
        del values["engine"]["micro_batch_size"], values["engine"]["recompute"]
        return values
