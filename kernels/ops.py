"""The public history operators: checks, schema, fake kernel, gradient.

Each operator has one implementation, which runs the compiled kernel where one is available and the
reference elsewhere; `kernels.is_compiled` says which. The public functions check shapes, the
implementation checks values and looks up cached tables. Both paths therefore raise the same errors,
and `torch.compile` sees one opaque operator.
"""

import torch
from torch import Tensor

from remask.kernels import native, reference
from remask.kernels.build import native as find_native
from remask.kernels.build import warn_if_reference
from remask.kernels.segments import Segments, check_shapes

_LIBRARY = torch.library.Library("remask", "DEF")
_SEGMENTS = "Tensor tokens, Tensor ends, Tensor step"


def history_step(acc: Tensor, embed: Tensor, *, decay: float, rotate: bool = True) -> Tensor:
    """Age a history by one step and add the newest embedding: a = embed + γ R_{-1} acc.

    Args:
        acc: History so far, [..., D], float32 (or float64, for checking gradients).
        embed: Embeddings of the newest state, [..., D], of any floating type.
        decay: γ, weight kept per step into the past, in (0, 1].
        rotate: Rotate by age; false sums past states unrotated.

    Returns:
        The new history, [..., D], in acc's dtype. Differentiable in acc and embed.
    """
    _check_decay(decay)
    if acc.shape != embed.shape or acc.dim() == 0:
        raise ValueError(
            f"acc and embed must share one shape [..., D], got {list(acc.shape)} and "
            f"{list(embed.shape)}; start a history as zeros of embed's shape"
        )
    if acc.dtype not in (torch.float32, torch.float64) or not embed.is_floating_point():
        raise ValueError(
            f"acc must be float32 and embed floating, got {acc.dtype} and {embed.dtype}; "
            "a history is kept in float32 whatever the model's dtype"
        )
    _check_width(acc.shape[-1])
    _check_one_device({"acc": acc, "embed": embed})
    return torch.ops.remask.history_step(acc, embed, decay, rotate, False)


def history_embed(
    weight: Tensor,
    tokens: Tensor,
    ends: Tensor,
    step: Tensor,
    *,
    horizon: int,
    decay: float,
    rotate: bool = True,
    window: int | None = None,
) -> Tensor:
    """The history of trajectories given as segments: at most S gathers, whatever the horizon.

    Args:
        weight: Token embeddings, [V, D], of any floating type, D even.
        tokens: Tokens of the segments, [S, B, N], integer, the last ones the target x*.
        ends: Step at which each segment but the last ends, [S-1, B, N], in 0 .. `horizon`,
            non-decreasing along S.
        step: Current step t of each row, [B], in 0 .. `horizon`.
        horizon: T, the number of steps in a trajectory.
        decay: γ, weight kept per step into the past, in (0, 1].
        rotate: Rotate by age; false sums past states unrotated.
        window: Number of past states that count besides the current one; defaults to all.

    Returns:
        a^(t), [B, N, D], float32 (float64 for float64 weights). Differentiable in weight.
    """
    _check_decay(decay)
    _check_embed_inputs(weight, tokens, ends, step)
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    if window is not None and window < 0:
        raise ValueError(f"window must be 0 or more past states, got {window}")
    tokens, ends, step = (x.to(torch.int32) for x in (tokens, ends, step))
    return torch.ops.remask.history_embed(
        weight, tokens, ends, step, horizon, decay, rotate, window
    )


# history_step -------------------------------------------------------------------------------------

_LIBRARY.define(
    "history_step(Tensor acc, Tensor embed, float decay, bool rotate, bool backward) -> Tensor"
)


def _history_step(acc: Tensor, embed: Tensor, decay: float, rotate: bool, backward: bool) -> Tensor:
    if acc.numel() == 0:
        return torch.empty_like(acc)
    turn = reference.turn(acc.shape[-1], decay, rotate, backward, acc.dtype, acc.device)
    if torch.float64 in (acc.dtype, embed.dtype):  # narrower types are read as they are stored
        embed = embed.to(acc.dtype)
    library = _library_for(acc, embed.dtype)
    if library is None:
        return reference.history_step(acc, embed, turn).contiguous()
    run = native.cuda_history_step if acc.is_cuda else native.cpu_history_step
    return run(library, acc.contiguous(), embed.contiguous(), turn)


_LIBRARY.impl("history_step", _history_step, "CompositeExplicitAutograd")


@torch.library.register_fake("remask::history_step")
def _(acc: Tensor, embed: Tensor, decay: float, rotate: bool, backward: bool) -> Tensor:
    return torch.empty_like(acc, memory_format=torch.contiguous_format)


def _step_setup(ctx, inputs, output) -> None:
    _, embed, ctx.decay, ctx.rotate, ctx.backward = inputs
    ctx.embed_dtype = embed.dtype


def _step_backward(ctx, grad: Tensor):
    # R is orthogonal: the gradient of acc returns through the opposite rotation.
    grad_acc = torch.ops.remask.history_step(
        grad, torch.zeros_like(grad), ctx.decay, ctx.rotate, not ctx.backward
    )
    return grad_acc, grad.to(ctx.embed_dtype), None, None, None


torch.library.register_autograd("remask::history_step", _step_backward, setup_context=_step_setup)


# history_embed ------------------------------------------------------------------------------------

_SETTINGS = "int horizon, float decay, bool rotate, int? window"
_LIBRARY.define(f"history_embed(Tensor weight, {_SEGMENTS}, {_SETTINGS}) -> Tensor")
_LIBRARY.define(
    f"history_embed_backward(Tensor grad, {_SEGMENTS}, {_SETTINGS}, int vocab_size,"
    " bool deterministic) -> Tensor"
)


def _history_embed(weight, tokens, ends, step, horizon, decay, rotate, window) -> Tensor:
    _, batch, positions = tokens.shape
    width, dtype = weight.shape[1], _sum_dtype(weight)
    if batch == 0 or positions == 0:
        return weight.new_empty(batch, positions, width, dtype=dtype)
    segments = tokens.contiguous(), ends.contiguous(), step.contiguous()
    library = _library_for(weight, weight.dtype)
    _check_values(library, segments, weight.shape[0], horizon)
    table = reference.coefficient_table(width, horizon, decay, rotate, window, dtype, weight.device)
    if library is None:
        return reference.history_embed(weight, *segments, table)
    run = native.cuda_history_embed if weight.is_cuda else native.cpu_history_embed
    return run(library, weight.contiguous(), segments, table)


def _history_embed_backward(
    grad, tokens, ends, step, horizon, decay, rotate, window, vocab_size, deterministic
) -> Tensor:
    segments = tokens.contiguous(), ends.contiguous(), step.contiguous()
    table = reference.coefficient_table(
        grad.shape[-1], horizon, decay, rotate, window, grad.dtype, grad.device
    )
    library = _library_for(grad, grad.dtype)
    if library is None or grad.numel() == 0:
        return reference.history_embed_backward(grad, *segments, table, vocab_size)
    arguments = (library, grad.contiguous(), segments, table, vocab_size)
    if grad.is_cuda:
        return native.cuda_history_embed_backward(*arguments, deterministic=deterministic)
    return native.cpu_history_embed_backward(*arguments)


_LIBRARY.impl("history_embed", _history_embed, "CompositeExplicitAutograd")
_LIBRARY.impl("history_embed_backward", _history_embed_backward, "CompositeExplicitAutograd")


@torch.library.register_fake("remask::history_embed")
def _(weight, tokens, *_) -> Tensor:
    return weight.new_empty(*tokens.shape[1:], weight.shape[1], dtype=_sum_dtype(weight))


@torch.library.register_fake("remask::history_embed_backward")
def _(grad, *arguments) -> Tensor:
    *_, vocab_size, _ = arguments
    return grad.new_empty(vocab_size, grad.shape[-1])


def _embed_setup(ctx, inputs, output) -> None:
    weight, *segments = inputs[:4]
    ctx.settings = inputs[4:]
    ctx.vocab_size, ctx.weight_dtype = weight.shape[0], weight.dtype
    ctx.save_for_backward(*segments)


def _embed_backward(ctx, grad: Tensor):
    deterministic = torch.are_deterministic_algorithms_enabled()
    grad_weight = torch.ops.remask.history_embed_backward(
        grad, *ctx.saved_tensors, *ctx.settings, ctx.vocab_size, deterministic
    )
    return grad_weight.to(ctx.weight_dtype), *[None] * 7


torch.library.register_autograd(
    "remask::history_embed", _embed_backward, setup_context=_embed_setup
)


def _embed_backward_setup(ctx, inputs, output) -> None:
    _, *segments = inputs[:4]
    ctx.settings = inputs[4:8]
    ctx.save_for_backward(*segments)


def _embed_backward_backward(ctx, grad: Tensor):
    # The backward is linear, and its transpose is the forward.
    return torch.ops.remask.history_embed(grad, *ctx.saved_tensors, *ctx.settings), *[None] * 9


torch.library.register_autograd(
    "remask::history_embed_backward",
    _embed_backward_backward,
    setup_context=_embed_backward_setup,
)


def _sum_dtype(weight: Tensor) -> torch.dtype:
    """Sums are in float32 at least, whatever the storage."""
    return torch.promote_types(weight.dtype, torch.float32)


# Checks -------------------------------------------------------------------------------------------


def _library_for(tensor: Tensor, storage: torch.dtype):
    """The compiled library for this tensor's device and storage type; None for the reference."""
    types = native.CUDA_DTYPES if tensor.is_cuda else native.CPU_DTYPES
    if storage not in types or (tensor.is_cuda and tensor.dtype == torch.float64):
        return None
    warn_if_reference(tensor.device.type)
    return find_native(tensor.device.type).library


def _check_decay(decay: float) -> None:
    if not 0 < decay <= 1:
        raise ValueError(f"decay must lie in (0, 1], got {decay}; 1.0 keeps all")


def _check_width(width: int) -> None:
    if width == 0 or width % 2:
        raise ValueError(f"width D must be even, as rotation acts on pairs; got {width}")


def _check_one_device(tensors: dict[str, Tensor]) -> None:
    if len({x.device for x in tensors.values()}) > 1:
        places = ", ".join(f"{name} on {x.device}" for name, x in tensors.items())
        raise ValueError(f"all tensors must be on one device, got {places}")


def _check_embed_inputs(weight: Tensor, tokens: Tensor, ends: Tensor, step: Tensor) -> None:
    if weight.dim() != 2 or not weight.is_floating_point():
        raise ValueError(
            f"weight must be a floating [V, D], got {weight.dtype} {list(weight.shape)}"
        )
    _check_width(weight.shape[1])
    check_shapes(tokens, ends, step)
    segments = {"tokens": tokens, "ends": ends, "step": step}
    for name, x in segments.items():
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise ValueError(f"{name} must hold integers, got {x.dtype}")
    _check_one_device({"weight": weight, **segments})


def _check_values(library, segments: native.Tensors, vocab_size: int, horizon: int) -> None:
    """Raise ValueError for values that would read out of bounds.

    Values on a GPU are not checked: that would wait for the device. Readers check them beforehand.
    """
    if segments[0].is_cuda:
        return
    if library is None or not native.cpu_segments_are_valid(library, segments, vocab_size, horizon):
        Segments(*segments).check(vocab_size=vocab_size, horizon=horizon)
