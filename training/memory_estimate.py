"""The memory that a rank of a training run will need, before anything is loaded.

Weights, gradients and optimizer state follow from the model's shapes and from how ZeRO partitions
them. Activations are what the backbone saves for the backward pass when it runs on the meta device,
which has shapes but no data. Memory that libraries use besides, such as an allocator's fragments,
is not counted: leave room for it.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from remask.models import Backbone
from remask.training.objective import chunks
from remask.training.optimizer import OptimizerConfig, split_parameters
from remask.training.recipe import EngineConfig, TrainRecipe

MASTER = 4
"""Bytes of a master weight, which ZeRO keeps in float32 whatever the model's dtype."""
LOGIT = 12
"""Peak bytes per logit of a chunk during its backward pass, in float32: its log-probability and two
gradients. With bf16 weights, the head's own bf16 logit is added."""
ADAM_WORK = 12
"""Bytes per weight that is updated at once: its float32 gradient and two intermediate results."""
BUCKET, GATHERED, SUB_GROUP = 500_000_000, 1_000_000_000, 1_000_000_000
"""DeepSpeed's defaults, in elements: reduction bucket, weights gathered at once, update group."""


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one rank."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Peak over a micro-batch."""
    logits: int
    gathered: int
    """Whole weights and gradients while they are in use, and ZeRO's buffers for them."""
    update: int
    """Temporary values of the weight update, when activations, logits and `gathered` are free."""
    host: int
    """Host memory for what this rank offloads."""

    @property
    def total(self) -> int:
        """Peak bytes on the device over a step."""
        persistent = self.weights + self.gradients + self.optimizer
        return persistent + max(self.activations + self.logits + self.gathered, self.update)

    def __str__(self) -> str:
        parts = [
            f"{f.name} {size_text(getattr(self, f.name))}" for f in fields(self) if f.name != "host"
        ]
        host = f"; host memory {size_text(self.host)}" if self.host else ""
        return f"{', '.join(parts)}; at most {size_text(self.total)}{host}"


def estimate_memory(
    backbone: Backbone, recipe: TrainRecipe, *, ranks: int, micro_batch: int, length: int
) -> MemoryEstimate:
    """Estimate the memory that a recipe needs on each rank.

    Args:
        backbone: The model on the meta device, with its adapter if there is one.
        recipe: Settings of engine, optimizer and history.
        ranks: Number of ranks that ZeRO partitions among.
        micro_batch: Rows per forward pass of a rank.
        length: Tokens of a row.
    """
    engine, history = recipe.engine, recipe.history or backbone.history
    width = 2 if engine.precision == "bf16" else 4
    parameters = list(backbone.parameters())
    trained = [x for x in parameters if x.requires_grad]
    stage = engine.zero_stage
    own = _share(trained, ranks if stage else 1)
    state = optimizer_bytes(backbone, trained, recipe.optimizer, ranks if stage else 1)
    optimizer = state + (MASTER * own if stage else 0)
    weights = width * _share(parameters, ranks if stage == 3 else 1)
    gradients = width * _share(trained, ranks if stage >= 2 else 1)
    gathered = _gathered(parameters, trained, engine, width)
    if history.rotation == "released":
        gathered += width * backbone.token_embedding.numel()  # a copy with permuted columns
    logits = min(chunks.CHUNK_ELEMENTS, micro_batch * length * backbone.vocab_size)
    host = 0
    if engine.offload != "none":
        host, optimizer = optimizer + MASTER * own, 0  # with float32 gradients
    if engine.offload == "all":
        host, weights = host + weights, 0
    return MemoryEstimate(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=_activations(backbone, engine, micro_batch, length),
        logits=(LOGIT + width % 4) * logits,
        gathered=gathered,
        update=_update(own, engine),
        host=host,
    )


def _share(parameters: list[nn.Parameter], ranks: int) -> int:
    """Elements on one rank, with each parameter partitioned separately."""
    return sum(math.ceil(x.numel() / ranks) for x in parameters)


def optimizer_bytes(
    backbone: Backbone, trained: list[nn.Parameter], config: OptimizerConfig, ranks: int = 1
) -> int:
    """Bytes of optimizer state on a rank: AdamW has two float32 values per weight, Muon one."""
    matrices, rest = [], trained
    if config.kind == "muon":
        matrices, rest = split_parameters(backbone, trained)
    return 4 * _share(matrices, ranks) + 8 * _share(rest, ranks)


def _setting(engine: EngineConfig, name: str, default: int) -> int:
    """A size in elements, from `engine.deepspeed` if it is set there."""
    zero = engine.deepspeed.get("zero_optimization", {})
    return int(zero.get(name, default))


def _gathered(
    parameters: list[nn.Parameter], trained: list[nn.Parameter], engine: EngineConfig, width: int
) -> int:
    largest = max((x.numel() for x in trained), default=0)
    whole_gradient = (4 + width) * largest  # the embedding's is computed in float32
    if engine.zero_stage == 0:
        return whole_gradient
    bucket = width * _setting(engine, "reduce_bucket_size", BUCKET)
    if engine.zero_stage < 3:
        return whole_gradient + bucket
    max_live = _setting(engine, "stage3_max_live_parameters", GATHERED)
    live = width * min(max(max_live, largest), sum(x.numel() for x in parameters))
    return whole_gradient + bucket + live


def _update(own: int, engine: EngineConfig) -> int:
    if engine.offload != "none":
        return 0
    at_once = own
    if engine.zero_stage == 3:
        at_once = min(own, _setting(engine, "sub_group_size", SUB_GROUP))
    return ADAM_WORK * at_once


def _activations(backbone: Backbone, engine: EngineConfig, rows: int, length: int) -> int:
    """Bytes that are saved for the backward pass, from the embeddings to the last hidden state."""
    dtype = torch.bfloat16 if engine.precision == "bf16" else torch.float32
    model = backbone.to("meta", dtype).train()
    size = backbone.token_embedding.shape[1]
    embeds = torch.empty(rows, length, size, device="meta", dtype=dtype, requires_grad=True)
    saved = _SavedTensors(model)
    with saved.by_block(), saved_tensors_hooks(saved.keep, lambda x: x), _FusedAttention():
        model.hidden(embeds)
    history = 4 * embeds.numel()  # the sum over past states, in float32
    if not engine.recompute:
        cast = 2 * sum(x.numel() for x in model.parameters()) * (engine.precision == "mixed")
        return history + saved.total + cast
    blocks = saved.blocks
    inputs = len(blocks) * embeds.numel() * embeds.element_size()
    return history + saved.total - sum(blocks) + inputs + max(blocks, default=0)


class _SavedTensors:
    """Counts bytes saved for the backward pass: without weights, and shared storage once."""

    def __init__(self, model: Backbone) -> None:
        self.total = 0
        self.blocks: list[int] = []
        """Bytes of each call of a block."""
        self._model = model
        self._known = {x.untyped_storage()._cdata for x in model.parameters()}
        self._held: list[Tensor] = []  # keeps storage alive, since addresses identify it

    def keep(self, x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage._cdata not in self._known:
            self._known.add(storage._cdata)
            self._held.append(x)
            self.total += storage.nbytes()
        return x

    @contextmanager
    def by_block(self) -> Iterator[None]:
        handles = []
        for block in self._model.blocks:
            handles.append(block.register_forward_pre_hook(self._enter))
            handles.append(block.register_forward_hook(self._leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, *_: Any) -> None:
        self.blocks.append(-self.total)

    def _leave(self, *_: Any) -> None:
        self.blocks[-1] += self.total


class _FusedAttention(TorchFunctionMode):
    """Replaces attention by its fused form, since the meta device would save a matrix of scores."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            query, key, value = args[:3]
            return _SavedAttention.apply(query, key, value)
        return func(*args, **(kwargs or {}))


class _SavedAttention(torch.autograd.Function):
    """Saves what fused attention saves: its inputs, its output and one number per query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:-1]).float())
        return out


def size_text(count: int) -> str:
    """A number of bytes with its unit, like `1.2 GB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
