"""Everything that can be checked before anything expensive starts."""

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
from remask.pipeline.inputs.describe import Files
from remask.training.deepspeed_config import check_deepspeed
from remask.training.inputs import find_inputs
from remask.training.loader import Loader
from remask.training.mixture import Mixture, check_same_vocabulary
from remask.training.objective import OBJECTIVES, num_chunks
from remask.training.recipe import TrainRecipe
from remask.training.rounds import data_folder
from remask.training.shard_set import ShardSet
from remask.training.world import World


@dataclass(frozen=True)
class TrainingPlan:
    """A recipe, resolved for its data and a number of ranks."""

    recipe: TrainRecipe
    train: Mixture
    """The data sets that the recipe names; `mixture` adds a round's."""
    held_out: ShardSet | None
    """The held-out split of the first data set that has one, if it is decoded."""
    steps: int
    """Total number of updates."""
    micro_batches: int
    """Micro-batches per rank and update."""

    @property
    def horizon(self) -> int:
        """T of the trajectories; the largest of all sets."""
        rounds = self.recipe.rounds
        return max(self.train.horizon, rounds.horizon if rounds else 0)

    @cached_property
    def start(self) -> str | None:
        """Fingerprint of the checkpoint that the run starts from, if any."""
        return fingerprint(self.recipe.start) if self.recipe.start else None

    @cached_property
    def inputs(self) -> tuple[Files | None, str | None]:
        """The files that say how the model's inputs are read, or a note on why there are none."""
        return find_inputs(self.recipe)

    @property
    def content(self) -> dict[str, Any]:
        """The settings that the result depends on, with the fingerprints of data and checkpoint."""
        return {**self.recipe.content, "data": self._data, "start": self.start}

    def part_of(self, step: int) -> range:
        """The steps around a step that take their rows from the same data sets: those of its round,
        or all of them."""
        rounds = self.recipe.rounds
        return rounds.steps_of(rounds.round_of(step)) if rounds else range(self.steps)

    def mixture(self, step: int) -> Mixture:
        """What the batch of a step is drawn from; with rounds, the round's data must be there.

        Raises:
            StorageError: The round's data cannot be read.
            ValueError: It does not fit the model.
        """
        rounds = self.recipe.rounds
        if rounds is None:
            return self.train
        number = rounds.round_of(step)
        shards = ShardSet(str(data_folder(self.recipe.rounds_folder, number)), "train")
        check_same_vocabulary((*self.train.sets, shards))
        _check_rows(outline_start(self.recipe.start or "", check=False), shards)
        return self.train.with_round(
            shards, self.recipe.rows_per_set[-1], rounds.steps_of(number).start
        )

    def max_chunks(self, mixture: Mixture, vocab_size: int, world: World) -> int:
        """Calls of the head for the largest micro-batch that a rank may get."""
        rows = self.recipe.batch_size // world.size // self.micro_batches
        return num_chunks(rows * mixture.longest, vocab_size)

    def make_backbone(self) -> Backbone:
        """Make the model to train, with the same weights on every rank and every launch."""
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

    @property
    def _data(self) -> Any:
        """The fingerprint of the rows; of several sets, in their order, with their shares."""
        fingerprints = [x.fingerprint for x in self.train.sets]
        if len(fingerprints) == 1:
            return fingerprints[0]
        pairs = zip(fingerprints, self.recipe.shard_sets, strict=True)
        return [{"rows": fingerprint, "share": x.share} for fingerprint, x in pairs]

    def _history(self, history: HistoryConfig) -> HistoryConfig:
        if OBJECTIVES[self.recipe.objective.kind].uses_history:
            return history
        return dataclasses.replace(history, variant="none")


def make_plan(recipe: TrainRecipe, world: World, *, has_weights: bool = True) -> TrainingPlan:
    """Read the recipe's data and model, and check that they fit together.

    Args:
        recipe: What to train.
        world: The ranks, of which this is one.
        has_weights: False if the checkpoint to start from may consist of config.json alone.

    Raises:
        ValueError: They do not fit together.
        StorageError: The data set cannot be read.
    """
    if recipe.start and is_adapter(Path(recipe.start)):
        raise ValueError(
            f"start {recipe.start} is an adapter; merge it into its base first with `remask merge`"
        )
    check_deepspeed(recipe.engine)
    sets = tuple(ShardSet(x.uri, "train") for x in recipe.shard_sets)
    check_same_vocabulary(sets)
    rows = recipe.rows_per_set[: len(sets)]
    train = Mixture(sets, rows, recipe.seed, recipe.shuffle_buffer)
    held_out = None
    if recipe.held_out.every:
        uris = (x.uri for x in sets if "held_out" in x.splits)
        held_out = next((ShardSet(uri, "held_out") for uri in uris), None)
    plan = TrainingPlan(
        recipe,
        train,
        held_out,
        recipe.num_steps(train.num_rows),
        recipe.batch_size // world.size // micro_batch_size(recipe, world.size),
    )
    if not recipe.rounds:
        Loader(train, rank=world.rank, world_size=world.size)
    _check_model(plan, has_weights=has_weights)
    return plan


def micro_batch_size(recipe: TrainRecipe, ranks: int) -> int:
    """Rows per forward pass of each rank; ValueError if the batch does not divide evenly."""
    per_rank, remainder = divmod(recipe.batch_size, ranks)
    micro = recipe.engine.micro_batch_size or per_rank or 1
    if remainder or per_rank % micro:
        raise ValueError(
            f"batch_size {recipe.batch_size} must be a multiple of ranks × micro_batch_size "
            f"({ranks} × {micro})"
        )
    return micro


def outline_start(start: str, *, check: bool) -> Backbone:
    """Build the model that a recipe starts from on the meta device, without weights."""
    try:
        return outline(start, check=check)
    except ValueError as error:
        raise ValueError(f"start: {error}") from error


def _check_model(plan: TrainingPlan, *, has_weights: bool) -> None:
    """Raise ValueError unless the rows' lengths, vocabulary and horizon fit the model."""
    recipe = plan.recipe
    if recipe.start is None:
        with torch.device("meta"):
            backbone = create(recipe.model or {})
    else:
        backbone = outline_start(recipe.start, check=has_weights)
    if recipe.objective.drops_conditions:
        edit_layout(backbone, "objective.text_dropout or image_dropout")
    for shards in [*plan.train.sets, *([plan.held_out] if plan.held_out else [])]:
        _check_rows(backbone, shards)
    if plan.held_out is not None:
        (train,) = (x for x in plan.train.sets if x.uri == plan.held_out.uri)
        horizons = [x.shared_value("horizon") for x in (plan.held_out, train)]
        if horizons[0] != horizons[1]:
            raise ValueError(
                f"{train.uri} has horizon {horizons[0]} in held_out and {horizons[1]} in train; "
                "build both with one recipe"
            )


def _check_rows(backbone: Backbone, shards: ShardSet) -> None:
    """Raise ValueError unless the lengths and the vocabulary of a set's rows fit the model."""
    if backbone.max_length is not None and shards.longest > backbone.max_length:
        raise ValueError(
            f"{shards.uri} has rows of {shards.longest} tokens, the model takes "
            f"{backbone.max_length}; build shards with source.max_length {backbone.max_length}"
        )
    checks = {
        "vocab_size": (backbone.vocab_size, backbone.fits(shards.shared_value("vocab_size"))),
        "mask_id": (backbone.mask_id, backbone.mask_id == shards.shared_value("mask_id")),
    }
    for name, (of_model, fits) in checks.items():
        if not fits:
            raise ValueError(
                f"{shards.uri} has {name} {shards.shared_value(name)}, the model {of_model}; "
                "train a model with the data's vocabulary, or build shards for this model"
            )
