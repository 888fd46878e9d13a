"""Forward passes and GPU hours of a run, from counts, before anything is loaded.

A forward pass over N tokens takes about 2 · weights · N + 4 · layers · width · N² operations; torch
counts them on the meta device, so that they are exact for every backbone. Hours follow from the
speed of a GPU and the share of it that a run is assumed to reach. Loading, saving, communication
and waiting are not counted.
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import torch
from torch.utils.flop_counter import FlopCounterMode

from remask.models import Backbone
from remask.models.ranges import Range, check_fields
from remask.training.recipe import TrainRecipe


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a GPU computes per second."""

    gpu_tflops: Annotated[float, Range("(0, inf)", "give --gpu-tflops per GPU")] = 989.0
    """Peak TFLOP/s of a GPU. Defaults to an H100's for dense products in bf16."""
    utilisation: Annotated[float, Range("(0, 1]")] = 0.3
    """Share of the peak that a run reaches."""

    def __post_init__(self) -> None:
        check_fields(self)

    def hours(self, flops: float) -> str:
        """The GPU hours of a number of operations, with what is assumed."""
        hours = flops / (self.gpu_tflops * 1e12 * self.utilisation) / 3600
        return (
            f"{flops:.2e} FLOP, {hours:.3g} GPU hours at {self.utilisation:.0%} of "
            f"{self.gpu_tflops:g} TFLOP/s"
        )


def forward_flops(backbone: Backbone, length: int) -> int:
    """Operations of a forward pass over one row.

    Args:
        backbone: The model on the meta device.
        length: Tokens of the row.
    """
    embedding = backbone.token_embedding
    embeds = torch.empty(1, length, embedding.shape[1], device="meta", dtype=embedding.dtype)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        backbone.logits(embeds)
    return counter.get_total_flops()


def training_factor(backbone: Backbone, recipe: TrainRecipe) -> float:
    """Cost of a training step per row, in forward passes.

    The forward pass, the gradient of the activations, that of the trained weights, and the forward
    pass again if activations are recomputed. Logits of a large vocabulary are computed twice in any
    case, which is not counted without `recompute`.
    """
    sizes = [(x.numel(), x.requires_grad) for x in backbone.parameters()]
    trained = sum(size for size, is_trained in sizes if is_trained)
    return 2 + trained / sum(size for size, _ in sizes) + recipe.engine.recompute


def describe_compute(
    backbone: Backbone, recipe: TrainRecipe, *, steps: int | None, length: int, speed: Speed
) -> list[str]:
    """Lines on the rounds, if there are any, and on the GPU hours of rollouts and training.

    Args:
        backbone: The model on the meta device, with its adapter if there is one.
        recipe: What to train.
        steps: Total number of updates; None if it is not known.
        length: Tokens of a row.
        speed: What a GPU computes.
    """
    per_row = forward_flops(backbone, length)
    factor = training_factor(backbone, recipe)
    rows = f"{recipe.batch_size} rows of {length} tokens, {factor:.3g} forward passes a row"
    flops = factor * per_row * recipe.batch_size
    count = f"{steps:,} steps of " if steps else "steps are not known; one has "
    training = f"training: {count}{rows}: {speed.hours(flops * (steps or 1))}"
    return [*_describe_rounds(recipe, per_row, length, speed), training]


def _describe_rounds(recipe: TrainRecipe, per_row: int, length: int, speed: Speed) -> list[str]:
    rounds = recipe.rounds
    if rounds is None:
        return []
    rollout = recipe.round_recipe(0)
    decodes = rounds.shards * rollout.examples_per_shard
    used = rounds.every * recipe.rows_per_set[-1]
    passes = fmean(rollout.decoders.steps) + 1  # and the closing one
    total = recipe.num_rounds * decodes * passes
    return [
        f"rounds: {recipe.num_rounds} of {rounds.every:,} steps; each has at most {decodes:,} "
        f"decodes and {decodes * rollout.looks:,} rows, of which {used:,} are drawn",
        f"rollouts: at most {recipe.num_rounds * decodes:,} decodes of {passes:g} forward passes "
        f"on average, {total:,.0f} passes over {length} tokens: {speed.hours(total * per_row)}",
    ]
