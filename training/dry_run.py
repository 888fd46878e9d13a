"""What a recipe would do: its resolved settings, its steps, and the memory and GPU hours it needs.

A checkpoint's config.json is enough, so a run can be planned before weights are downloaded.
"""

from dataclasses import dataclass, field
from typing import Annotated

import torch

from remask.models import Backbone, create
from remask.models.backbones.named_sizes import lacks_vocabulary
from remask.models.checkpoints.adapter import add_lora
from remask.models.ranges import Range, check_fields
from remask.pipeline.format.manifest import MANIFEST
from remask.pipeline.runtime.command import plain
from remask.pipeline.runtime.plain_yaml import write_yaml
from remask.pipeline.runtime.storage import Storage
from remask.training.compute_estimate import Speed, describe_compute
from remask.training.deepspeed_config import check_deepspeed
from remask.training.memory_estimate import estimate_memory
from remask.training.plan import make_plan, micro_batch_size, outline_start
from remask.training.recipe import TrainRecipe
from remask.training.world import World


@dataclass(frozen=True)
class Machine:
    """The machine that a run is planned for."""

    ranks: int
    length: Annotated[int | None, Range("[1, inf)", "give --length in tokens")] = None
    """Tokens of the longest row. Defaults to that of the shards, or the model's limit."""
    gpu_memory: Annotated[float | None, Range("(0, inf)", "give --gpu-memory in GB")] = None
    """Memory of each GPU, in GB."""
    speed: Speed = field(default_factory=Speed)

    def __post_init__(self) -> None:
        check_fields(self)


def describe(recipe: TrainRecipe, machine: Machine) -> str:
    """The resolved recipe, and the plan as comments."""
    check_deepspeed(recipe.engine)
    lines = [write_yaml(plain(recipe)).rstrip()]
    longest, mean, steps = machine.length, machine.length, recipe.steps
    uris = [x.uri for x in recipe.shard_sets]
    missing = [uri for uri in uris if not Storage(uri).exists(MANIFEST)]
    if not missing:
        world = World(rank=0, size=machine.ranks, local_rank=0, local_size=machine.ranks)
        plan = make_plan(recipe, world, has_weights=False)
        recipe = plan.recipe
        longest, mean = longest or plan.train.longest, mean or plan.train.mean_length
        steps = plan.steps
        lines.append(
            f"# train: {plan.steps} steps, {plan.train.num_rows} rows, {machine.ranks} ranks"
        )
        if len(uris) > 1:
            lines += [
                f"# {shards.uri}: {rows} of {recipe.batch_size} rows of each batch, "
                f"{plan.steps * rows / shards.num_rows:.3g} passes over {shards.num_rows} rows"
                for shards, rows in zip(plan.train.sets, recipe.rows_per_set, strict=True)
            ]
    else:
        unknown = "rows" if steps else "steps and rows"
        lines += [f"# {uri} is not built yet: {unknown} are not known" for uri in missing]
    backbone = make_outline(recipe)
    if recipe.model and lacks_vocabulary(recipe.model):
        lines.append(
            f"# the shards decide the vocabulary; until they are built, {backbone.vocab_size:,} "
            "ids are assumed"
        )
    longest = longest or backbone.max_length or 1024
    micro = micro_batch_size(recipe, machine.ranks)
    memory = estimate_memory(
        backbone, recipe, ranks=machine.ranks, micro_batch=micro, length=longest
    )
    lines.append(
        f"# model: {sum(x.numel() for x in backbone.parameters()):,} parameters, "
        f"{sum(x.numel() for x in backbone.parameters() if x.requires_grad):,} of them trained"
    )
    lines.append(f"# memory of each of {machine.ranks} ranks, {micro} × {longest} tokens: {memory}")
    if machine.gpu_memory is not None:
        lines.append(f"# {_verdict(memory.total, machine.gpu_memory)}")
    compute = describe_compute(
        backbone, recipe, steps=steps, length=mean or longest, speed=machine.speed
    )
    lines += [f"# {line}" for line in compute]
    return "\n".join(lines)


def make_outline(recipe: TrainRecipe) -> Backbone:
    """Build the model that a recipe trains on the meta device, with its adapter, if any."""
    with torch.device("meta"):
        if not recipe.start:
            return create(recipe.model or {})
        backbone = outline_start(recipe.start, check=False)
        if recipe.lora:
            add_lora(backbone, recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout)
        return backbone


def _verdict(needed: int, gpu_memory: float) -> str:
    spare = gpu_memory - needed / 1e9
    if spare >= 0:
        return f"fits {gpu_memory:g} GB, with {spare:.1f} GB to spare"
    return (
        f"does not fit {gpu_memory:g} GB: {-spare:.1f} GB too much; lower engine.micro_batch_size, "
        "set engine.recompute, raise engine.zero_stage or the number of ranks, offload, or use lora"
    )
