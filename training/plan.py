"""All that can be known, and refused, before anything expensive starts."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from remask.models import Backbone, HistoryConfig, create, fingerprint, load
from remask.models.checkpoints.adapter import add_lora, is_adapter
from remask.models.checkpoints.checkpoint import outline
from remask.models.images.guidance import edit_layout
from remask.training.deepspeed_config import check_deepspeed
from remask.training.loader import Loader
from remask.training.objective import OBJECTIVES, num_chunks
from remask.training.order import Order
from remask.training.recipe import TrainRecipe
from remask.training.shard_set import ShardSet
from remask.training.world import World


@dataclass(frozen=True)
class Plan:
    """A recipe and what it comes to, on its data and with so many ranks."""

    recipe: TrainRecipe
    train: ShardSet
    held_out: ShardSet | None
    steps: int
    micro_batches: int
    """Parts that each rank's rows of a batch come in."""
    horizon: int

    @cached_property
    def order(self) -> Order:
        recipe = self.recipe
        return Order(self.train.sizes, recipe.batch_size, recipe.seed, recipe.shuffle_buffer)

    @cached_property
    def start(self) -> str | None:
        """Fingerprint of the checkpoint that is trained on."""
        return fingerprint(self.recipe.start) if self.recipe.start else None

    @property
    def content(self) -> dict[str, Any]:
        """What the outcome depends on, data and start included."""
        return {**self.recipe.content, "data": self.train.fingerprint, "start": self.start}

    def max_chunks(self, vocab_size: int, world: World) -> int:
        """Calls of the head for the largest micro-batch that a rank may get."""
        rows = self.recipe.batch_size // world.size // self.micro_batches
        return num_chunks(rows * max(self.train.table["longest"]), vocab_size)

    def make_backbone(self) -> Backbone:
        """The model to train: the same weights on every rank and every launch."""
        recipe = self.recipe
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            if recipe.start is not None:
                backbone = load(recipe.start)
                backbone.history = self._history(recipe.history or backbone.history)
                if recipe.lora:
                    add_lora(backbone, recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout)
                return backbone.train()
            return create(recipe.model or {}, self._history(recipe.history or HistoryConfig()))

    def _history(self, history: HistoryConfig) -> HistoryConfig:
        if OBJECTIVES[self.recipe.objective.kind].uses_history:
            return history
        return dataclasses.replace(history, variant="none")


def make_plan(recipe: TrainRecipe, world: World, *, has_weights: bool = True) -> Plan:
    """Read what the recipe names and check that it fits together.

    Without `has_weights`, config.json is enough of a checkpoint to start from.

    Raises ValueError, saying what does not fit and what to do.
    """
    if recipe.start and is_adapter(Path(recipe.start)):
        raise ValueError(
            f"start {recipe.start} is an adapter; make a model of it first with `remask merge`"
        )
    check_deepspeed(recipe.engine)
    train = ShardSet(recipe.shards, "train")
    held_out = None
    if recipe.held_out.every and "held_out" in train.splits:
        held_out = ShardSet(recipe.shards, "held_out")
    plan = Plan(
        recipe,
        train,
        held_out,
        recipe.num_steps(train.num_rows),
        recipe.batch_size // world.size // micro_batch_size(recipe, world.size),
        train.shared_value("horizon"),
    )
    Loader(train, plan.order, rank=world.rank, world_size=world.size)
    _check_model(plan, has_weights=has_weights)
    return plan


def micro_batch_size(recipe: TrainRecipe, ranks: int) -> int:
    """Rows that each of so many ranks takes at once; ValueError if that leaves a remainder."""
    per_rank, left = divmod(recipe.batch_size, ranks)
    micro = recipe.engine.micro_batch_size or per_rank or 1
    if left or per_rank % micro:
        raise ValueError(
            f"batch_size {recipe.batch_size} must be a multiple of ranks × micro_batch_size "
            f"({ranks} × {micro})"
        )
    return micro


def outline_start(start: str, *, check: bool) -> Backbone:
    """The model that a recipe starts from, without its weights."""
    try:
        return outline(start, check=check)
    except ValueError as error:
        raise ValueError(f"start: {error}") from error


def _check_model(plan: Plan, *, has_weights: bool) -> None:
    """Does the data set's vocabulary belong to the model?"""
    recipe = plan.recipe
    if recipe.start is None:
        with torch.device("meta"):
            backbone = create(recipe.model or {})
    else:
        backbone = outline_start(recipe.start, check=has_weights)
    if recipe.objective.drops_conditions:
        edit_layout(backbone, "objective.text_dropout or image_dropout")
    both = [x for x in (plan.train, plan.held_out) if x is not None]
    longest = max(n for x in both for n in x.table["longest"])
    if backbone.max_length is not None and longest > backbone.max_length:
        raise ValueError(
            f"{plan.train.uri} has rows of {longest} tokens, the model takes "
            f"{backbone.max_length}; build shards with source.max_length {backbone.max_length}"
        )
    for shards in both:
        facts = {
            "vocab_size": (backbone.vocab_size, backbone.fits(shards.shared_value("vocab_size"))),
            "mask_id": (backbone.mask_id, backbone.mask_id == shards.shared_value("mask_id")),
        }
        for name, (mine, is_right) in facts.items():
            if not is_right:
                raise ValueError(
                    f"{shards.uri} has {name} {shards.shared_value(name)}, the model {mine}; train "
                    "a model of the data's vocabulary, or build shards for this model"
                )
        if shards.shared_value("horizon") != plan.horizon:
            raise ValueError(
                f"{shards.uri} has horizon {shards.shared_value('horizon')} in {shards.split} and "
                f"{plan.horizon} in {plan.train.split}; build both with one recipe"
            )
