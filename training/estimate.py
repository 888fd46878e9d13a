"""What a rank of a training run will need of memory, before anything is loaded.

Weights, gradients and optimiser follow from the model's shapes and from how ZeRO divides them.
Activations are what the backbone keeps for its gradient when it runs on the meta device, which has
shapes but no data. What a library keeps besides, such as fragments of an allocator, is not known:
leave it some room.
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
"""Bytes of a weight that ZeRO updates, in float32 whatever the model's type."""
LOGIT = 12
"""Bytes for each logit of a chunk at the height of its gradient, in float32: its log-probability
and two gradients. In bf16 the head's own logit comes on top."""
ADAM_WORK = 12
"""Bytes for each weight updated at once: its gradient in float32 and two intermediate results."""
BUCKET, GATHERED, SUB_GROUP = 500_000_000, 1_000_000_000, 1_000_000_000
"""DeepSpeed's own sizes, in elements: of a reduction, of weights gathered at once, of an update."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes on one rank."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """At the height of a micro-batch."""
    logits: int
    gathered: int
    """Whole weights and gradients while they are used, and ZeRO's buffers for them."""
    update: int
    """While weights are updated; activations, logits and what was gathered are free by then."""
    host: int
    """In the machine's memory, for this rank: what is offloaded."""

    @property
    def total(self) -> int:
        """On the device, at the height of a step."""
        lasting = self.weights + self.gradients + self.optimizer
        return lasting + max(self.activations + self.logits + self.gathered, self.update)

    def __str__(self) -> str:
        parts = [
            f"{f.name} {size_text(getattr(self, f.name))}" for f in fields(self) if f.name != "host"
        ]
        host = f"; host memory {size_text(self.host)}" if self.host else ""
        return f"{', '.join(parts)}; at most {size_text(self.total)}{host}"


def estimate(
    backbone: Backbone, recipe: TrainRecipe, *, ranks: int, micro_batch: int, length: int
) -> Estimate:
    """A recipe's need on each of so many ranks.

    Args:
        backbone: The model on the meta device, with its adapter if there is one.
        recipe: Engine, optimiser and objective.
        ranks: Among which ZeRO divides.
        micro_batch: Rows that a rank takes at once.
        length: Tokens of a row.
    """
    engine, history = recipe.engine, recipe.history or backbone.history
    wide = 2 if engine.precision == "bf16" else 4
    every = list(backbone.parameters())
    trained = [x for x in every if x.requires_grad]
    stage = engine.zero_stage
    mine = _share(trained, ranks if stage else 1)
    state = optimizer_bytes(backbone, trained, recipe.optimizer, ranks if stage else 1)
    optimizer = state + (MASTER * mine if stage else 0)
    weights = wide * _share(every, ranks if stage == 3 else 1)
    gradients = wide * _share(trained, ranks if stage >= 2 else 1)
    gathered = _gathered(every, trained, engine, wide)
    if history.rotation == "released":
        gathered += wide * backbone.token_embedding.numel()  # its columns in another order
    logits = min(chunks.CHUNK_ELEMENTS, micro_batch * length * backbone.vocab_size)
    host = 0
    if engine.offload != "none":
        host, optimizer = optimizer + MASTER * mine, 0  # and float32 gradients to update from
    if engine.offload == "all":
        host, weights = host + weights, 0
    return Estimate(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=_activations(backbone, engine, micro_batch, length),
        logits=(LOGIT + wide % 4) * logits,
        gathered=gathered,
        update=_update(mine, engine),
        host=host,
    )


def _share(parameters: list[nn.Parameter], ranks: int) -> int:
    """Elements of one rank, each parameter divided for itself."""
    return sum(math.ceil(x.numel() / ranks) for x in parameters)


def optimizer_bytes(
    backbone: Backbone, trained: list[nn.Parameter], config: OptimizerConfig, ranks: int = 1
) -> int:
    """AdamW keeps two float32 numbers for each weight, Muon one for those of its matrices."""
    matrices, rest = ([], trained)
    if config.kind == "muon":
        matrices, rest = split_parameters(backbone, trained)
    return 4 * _share(matrices, ranks) + 8 * _share(rest, ranks)


def _setting(engine: EngineConfig, name: str, usual: int) -> int:
    """A size that the recipe may have given DeepSpeed itself."""
    zero = engine.deepspeed.get("zero_optimization", {})
    return int(zero.get(name, usual))


def _gathered(
    every: list[nn.Parameter], trained: list[nn.Parameter], engine: EngineConfig, wide: int
) -> int:
    largest = max((x.numel() for x in trained), default=0)
    whole_gradient = (4 + wide) * largest  # the embedding's is made in float32
    if engine.zero_stage == 0:
        return whole_gradient
    bucket = wide * _setting(engine, "reduce_bucket_size", BUCKET)
    if engine.zero_stage < 3:
        return whole_gradient + bucket
    most = _setting(engine, "stage3_max_live_parameters", GATHERED)
    live = wide * min(max(most, largest), sum(x.numel() for x in every))
    return whole_gradient + bucket + live


def _update(mine: int, engine: EngineConfig) -> int:
    if engine.offload != "none":
        return 0
    at_once = mine
    if engine.zero_stage == 3:
        at_once = min(mine, _setting(engine, "sub_group_size", SUB_GROUP))
    return ADAM_WORK * at_once


def _activations(backbone: Backbone, engine: EngineConfig, rows: int, length: int) -> int:
    """Bytes kept from the embedding to the last hidden state."""
    dtype = torch.bfloat16 if engine.precision == "bf16" else torch.float32
    model = backbone.to("meta", dtype).train()
    width = backbone.token_embedding.shape[1]
    embeds = torch.empty(rows, length, width, device="meta", dtype=dtype, requires_grad=True)
    saved = _Saved(model)
    with saved.by_block(), saved_tensors_hooks(saved.keep, lambda x: x), _FusedAttention():
        model.hidden(embeds)
    history = 4 * embeds.numel()  # its sum, in float32
    if not engine.recompute:
        cast = 2 * sum(x.numel() for x in model.parameters()) * (engine.precision == "mixed")
        return history + saved.total + cast
    blocks = saved.blocks
    inputs = len(blocks) * embeds.numel() * embeds.element_size()
    return history + saved.total - sum(blocks) + inputs + max(blocks, default=0)


class _Saved:
    """Counts what is kept for the gradient, weights left out and shared storage counted once."""

    def __init__(self, model: Backbone) -> None:
        self.total = 0
        self.blocks: list[int] = []
        """Of each call of a block."""
        self._model = model
        self._known = {x.untyped_storage()._cdata for x in model.parameters()}
        self._held: list[Tensor] = []  # so that no storage is taken for an earlier one

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
    """Attention as devices run it, without a matrix of scores, which meta would make."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            query, key, value = args[:3]
            return _Attended.apply(query, key, value)
        return func(*args, **(kwargs or {}))


class _Attended(torch.autograd.Function):
    """Keeps what fused attention keeps: its inputs, its output, and a number per query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:-1]).float())
        return out


def size_text(count: int) -> str:
    """A number of bytes as people read it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
