"""The public history operators: checks, schema, fake kernel, gradient.

Each operator has one implementation that runs the compiled kernel where there is one and the
reference elsewhere; `kernels.is_compiled` says which. Shape checks live in the public functions,
value checks and cached tables in the implementation, so both paths refuse alike and `torch.compile`
sees one opaque operator.
"""

import torch
from torch import Tensor

from remask.kernels import native, reference
from remask.kernels.build import native as find_native
from remask.kernels.build import warn_if_reference

_LIBRARY = torch.library.Library("remask", "DEF")
_ROWS = "Tensor target, Tensor wrong, Tensor masked_at, Tensor revealed_at, Tensor step"


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
    target: Tensor,
    wrong: Tensor,
    masked_at: Tensor,
    revealed_at: Tensor,
    step: Tensor,
    *,
    mask_id: int,
    horizon: int,
    decay: float,
    rotate: bool = True,
    window: int | None = None,
) -> Tensor:
    """The history of trajectories given by their boundaries: at most three gathers whatever T.

    Args:
        weight: Token embeddings, [V, D], of any floating type, D even.
        target: Clean tokens x*, [B, N], integer; never `mask_id`.
        wrong: First tokens w, [B, N].
        masked_at: β: `wrong` shows at steps below it, [B, N].
        revealed_at: μ ≥ β: MASK shows from β up to it, `target` from then on, [B, N].
        step: Current step t of each row, [B], at most `horizon`.
        mask_id: Id of the mask token.
        horizon: T, the number of steps in a trajectory.
        decay: γ, weight kept per step into the past, in (0, 1].
        rotate: Rotate by age; false sums past states unrotated.
        window: Let only the current and this many past states count; all when none.

    Returns:
        a^(t), [B, N, D], float32 (float64 for float64 weights). Differentiable in weight.
    """
    _check_decay(decay)
    _check_embed_shapes(weight, target, wrong, masked_at, revealed_at, step)
    if not 0 <= mask_id < weight.shape[0]:
        raise ValueError(
            f"mask_id must be a row of weight, 0 .. {weight.shape[0] - 1}, got {mask_id}"
        )
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    if window is not None and window < 0:
        raise ValueError(f"window must be 0 or more past states, got {window}")
    rows = [x.to(torch.int32) for x in (target, wrong, masked_at, revealed_at, step)]
    return torch.ops.remask.history_embed(weight, *rows, mask_id, horizon, decay, rotate, window)


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

_LAW = "int mask_id, int horizon, float decay, bool rotate, int? window"
_LIBRARY.define(f"history_embed(Tensor weight, {_ROWS}, {_LAW}) -> Tensor")
_LIBRARY.define(
    f"history_embed_backward(Tensor grad, {_ROWS}, {_LAW}, int vocab_size, bool deterministic)"
    " -> Tensor"
)


def _history_embed(
    weight, target, wrong, masked_at, revealed_at, step, mask_id, horizon, decay, rotate, window
) -> Tensor:
    rows = _contiguous(target, wrong, masked_at, revealed_at, step)
    dtype = _sum_dtype(weight)
    if target.numel() == 0:
        return weight.new_empty(*target.shape, weight.shape[1], dtype=dtype)
    library = _library_for(weight, weight.dtype)
    _check_values(library, rows, mask_id, weight.shape[0], horizon)
    width, device = weight.shape[1], weight.device
    table = reference.coefficient_table(width, horizon, decay, rotate, window, dtype, device)
    if library is None:
        return reference.history_embed(weight, *rows, table, mask_id)
    run = native.cuda_history_embed if weight.is_cuda else native.cpu_history_embed
    return run(library, weight.contiguous(), rows, table, mask_id)


def _history_embed_backward(
    grad,
    target,
    wrong,
    masked_at,
    revealed_at,
    step,
    mask_id,
    horizon,
    decay,
    rotate,
    window,
    vocab_size,
    deterministic,
) -> Tensor:
    rows = _contiguous(target, wrong, masked_at, revealed_at, step)
    width, device = grad.shape[-1], grad.device
    table = reference.coefficient_table(width, horizon, decay, rotate, window, grad.dtype, device)
    library = _library_for(grad, grad.dtype)
    if library is None or grad.numel() == 0:
        return reference.history_embed_backward(grad, *rows, table, mask_id, vocab_size)
    arguments = (library, grad.contiguous(), rows, table, mask_id, vocab_size)
    if grad.is_cuda:
        return native.cuda_history_embed_backward(*arguments, deterministic=deterministic)
    return native.cpu_history_embed_backward(*arguments)


_LIBRARY.impl("history_embed", _history_embed, "CompositeExplicitAutograd")
_LIBRARY.impl("history_embed_backward", _history_embed_backward, "CompositeExplicitAutograd")


@torch.library.register_fake("remask::history_embed")
def _(weight, target, *_) -> Tensor:
    return weight.new_empty(*target.shape, weight.shape[1], dtype=_sum_dtype(weight))


@torch.library.register_fake("remask::history_embed_backward")
def _(grad, target, wrong, masked_at, revealed_at, step, *law) -> Tensor:
    *_, vocab_size, _ = law
    return grad.new_empty(vocab_size, grad.shape[-1])


def _embed_setup(ctx, inputs, output) -> None:
    weight, *rows = inputs[:6]
    ctx.law = inputs[6:]
    ctx.vocab_size, ctx.weight_dtype = weight.shape[0], weight.dtype
    ctx.save_for_backward(*rows)


def _embed_backward(ctx, grad: Tensor):
    deterministic = torch.are_deterministic_algorithms_enabled()
    grad_weight = torch.ops.remask.history_embed_backward(
        grad, *ctx.saved_tensors, *ctx.law, ctx.vocab_size, deterministic
    )
    return grad_weight.to(ctx.weight_dtype), *[None] * 10


torch.library.register_autograd(
    "remask::history_embed", _embed_backward, setup_context=_embed_setup
)


def _embed_backward_setup(ctx, inputs, output) -> None:
    _, *rows = inputs[:6]
    ctx.law = inputs[6:11]
    ctx.save_for_backward(*rows)


def _embed_backward_backward(ctx, grad: Tensor):
    # The backward is linear, and its transpose is the forward.
    return torch.ops.remask.history_embed(grad, *ctx.saved_tensors, *ctx.law), *[None] * 12


torch.library.register_autograd(
    "remask::history_embed_backward",
    _embed_backward_backward,
    setup_context=_embed_backward_setup,
)


def _sum_dtype(weight: Tensor) -> torch.dtype:
    """Sums are in float32 at least, whatever the storage."""
    return torch.promote_types(weight.dtype, torch.float32)


def _contiguous(
    target: Tensor, wrong: Tensor, masked_at: Tensor, revealed_at: Tensor, step: Tensor
) -> native.Rows:
    return (
        target.contiguous(),
        wrong.contiguous(),
        masked_at.contiguous(),
        revealed_at.contiguous(),
        step.contiguous(),
    )


# Checks -------------------------------------------------------------------------------------------


def _library_for(tensor: Tensor, storage: torch.dtype):
    """The compiled library for this tensor's device and storage type, or none."""
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
        raise ValueError(f"width D must be even, for rotation turns pairs; got {width}")


def _check_one_device(tensors: dict[str, Tensor]) -> None:
    if len({x.device for x in tensors.values()}) > 1:
        places = ", ".join(f"{name} on {x.device}" for name, x in tensors.items())
        raise ValueError(f"all tensors must be on one device, got {places}")


def _check_embed_shapes(weight, target, wrong, masked_at, revealed_at, step) -> None:
    if weight.dim() != 2 or not weight.is_floating_point():
        raise ValueError(
            f"weight must be a floating [V, D], got {weight.dtype} {list(weight.shape)}"
        )
    _check_width(weight.shape[1])
    grid = {"target": target, "wrong": wrong, "masked_at": masked_at, "revealed_at": revealed_at}
    if target.dim() != 2 or len({x.shape for x in grid.values()}) > 1:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in grid.items())
        raise ValueError(
            f"target, wrong and the boundaries must share one shape [B, N], got {shapes}"
        )
    if step.shape != target.shape[:1]:
        raise ValueError(f"step must be [B] = [{target.shape[0]}], got {list(step.shape)}")
    for name, x in (*grid.items(), ("step", step)):
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise ValueError(f"{name} must hold integers, got {x.dtype}")
    _check_one_device({"weight": weight, **grid, "step": step})


def _check_values(library, rows: native.Rows, mask_id: int, vocab_size: int, horizon: int) -> None:
    """Refuse rows that no trajectory has. Not on a GPU, which it would stall: loaders check."""
    if rows[0].is_cuda:
        return
    if library is not None and native.cpu_rows_are_valid(
        library, rows, mask_id, vocab_size, horizon
    ):
        return
    target, wrong, masked_at, revealed_at, step = rows
    faults = (
        ("target must be an id", target, (target < 0) | (target >= vocab_size)),
        ("wrong must be an id", wrong, (wrong < 0) | (wrong >= vocab_size)),
        (f"target must not be MASK (mask_id {mask_id})", target, target == mask_id),
        ("masked_at must be 0 or more", masked_at, masked_at < 0),
        ("masked_at must not exceed revealed_at", masked_at, masked_at > revealed_at),
        (f"revealed_at must not exceed horizon {horizon}", revealed_at, revealed_at > horizon),
        (f"step must lie in 0 .. horizon {horizon}", step, (step < 0) | (step > horizon)),
    )
    for message, values, bad in faults:
        if bad.any():
            place = bad.nonzero()[0].tolist()
            raise ValueError(f"{message}, got {int(values[tuple(place)])} at {place}")
