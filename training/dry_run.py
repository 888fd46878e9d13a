"""What a recipe would do, said before it is done: its settings, its steps, and the memory it needs.

Of the checkpoint to start from, config.json is enough, so that one can plan before downloading.
"""

from dataclasses import dataclass

import torch

from remask.models import Backbone, create
from remask.models.checkpoints.adapter import add_lora
from remask.pipeline.format.manifest import MANIFEST
from remask.pipeline.runtime.command import plain
from remask.pipeline.runtime.plain_yaml import write_yaml
from remask.pipeline.runtime.storage import Storage
from remask.training.deepspeed_config import check_deepspeed
from remask.training.estimate import estimate
from remask.training.plan import make_plan, micro_batch_size, outline_start
from remask.training.recipe import TrainRecipe
from remask.training.world import World


@dataclass(frozen=True)
class Machine:
    """For which a run is planned, where it is not this one."""

    ranks: int
    length: int | None = None
    """Tokens of the longest row, where shards are not there to say."""
    gpu_memory: float | None = None
    """Of each GPU, in GB."""

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"--length must be at least 1 token, got {self.length}")
        if self.gpu_memory is not None and self.gpu_memory <= 0:
            raise ValueError(f"--gpu-memory must be above 0 GB, got {self.gpu_memory}")


def describe(recipe: TrainRecipe, machine: Machine) -> str:
    """The resolved recipe, and the plan as comments."""
    check_deepspeed(recipe.engine)
    lines = [write_yaml(plain(recipe)).rstrip()]
    length = machine.length
    if Storage(recipe.shards).exists(MANIFEST):
        world = World(rank=0, size=machine.ranks, local_rank=0, local_size=machine.ranks)
        plan = make_plan(recipe, world, has_weights=False)
        length = length or max(plan.train.table["longest"])
        lines.append(
            f"# train: {plan.steps} steps, {plan.train.num_rows} rows, {machine.ranks} ranks"
        )
    else:
        lines.append(f"# {recipe.shards} is not built yet: steps and rows are not known")
    backbone = make_outline(recipe)
    length = length or backbone.max_length or 1024
    micro = micro_batch_size(recipe, machine.ranks)
    need = estimate(backbone, recipe, ranks=machine.ranks, micro_batch=micro, length=length)
    lines.append(
        f"# model: {sum(x.numel() for x in backbone.parameters()):,} parameters, "
        f"{sum(x.numel() for x in backbone.parameters() if x.requires_grad):,} of them trained"
    )
    lines.append(f"# memory of each of {machine.ranks} ranks, {micro} × {length} tokens: {need}")
    if machine.gpu_memory is not None:
        lines.append(f"# {_verdict(need.total, machine.gpu_memory)}")
    return "\n".join(lines)


def make_outline(recipe: TrainRecipe) -> Backbone:
    """The model that a recipe trains, without weights, with its adapter."""
    with torch.device("meta"):
        if not recipe.start:
            return create(recipe.model or {})
        backbone = outline_start(recipe.start, check=False)
        if recipe.lora:
            add_lora(backbone, recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout)
        return backbone


def _verdict(need: int, gpu_memory: float) -> str:
    room = gpu_memory - need / 1e9
    if room >= 0:
        return f"fits {gpu_memory:g} GB, with {room:.1f} GB to spare"
    return (
        f"does not fit {gpu_memory:g} GB: {-room:.1f} GB too much; lower engine.micro_batch_size, "
        "set engine.recompute, raise engine.zero_stage or the number of ranks, offload, or use lora"
    )
