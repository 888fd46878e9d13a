"""The history operators in plain PyTorch: the definition of correct.

`accumulate` is the method as the paper writes it, one state after another. `history_step` and
`history_embed` are what the operators run where nothing is compiled. A pair (2j, 2j+1) of a vector
is read as a complex number, and a rotation with decay is then a complex factor.
"""

import functools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from remask.kernels.segments import state_at

ROTATION_BASE = 10000.0


def lag_factors(
    lags: Tensor, width: int, *, decay: float, rotate: bool, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The weight of a state of each age: decay^lag · exp(-i·lag·θ_j), θ_j = 10000^(-2j/D).

    Args:
        lags: Ages in steps, [L].
        width: D, even.
        decay: γ in (0, 1].
        rotate: False gives the unrotated sum.
        dtype: Type of the result; the computation is in float64.

    Returns:
        Complex factors as interleaved pairs, [L, D].
    """
    lags = lags.to(torch.float64)[:, None]  # [L, 1]
    pair = torch.arange(width // 2, dtype=torch.float64, device=lags.device)
    angle = -lags * ROTATION_BASE ** (-2 * pair / width) * rotate  # [L, D/2]
    factors = torch.polar(decay**lags * torch.ones_like(angle), angle)
    return torch.view_as_real(factors).flatten(-2).to(dtype)  # [L, D]


@functools.lru_cache(maxsize=32)
def turn(
    width: int,
    decay: float,
    rotate: bool,
    backward: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The factor γ·R_{-1} by which a history ages one step, [D]; γ·R_{+1} for its gradient."""
    with torch.inference_mode(False):  # cached, so it must serve training too
        lag = torch.ones(1, device=device)
        factor = lag_factors(lag, width, decay=decay, rotate=rotate, dtype=dtype)[0]
        return conjugate(factor) if backward else factor


@functools.lru_cache(maxsize=32)
def coefficient_table(
    width: int,
    horizon: int,
    decay: float,
    rotate: bool,
    window: int | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """C[m], the summed factors of the m youngest states, for m = 0 .. horizon + 1: [T+2, D].

    With a window of W, only ages 0 .. W count: C[m] = C[W+1] for all larger m.
    """
    with torch.inference_mode(False):  # cached, so it must serve training too
        lags = torch.arange(horizon + 1, device=device)
        factors = lag_factors(lags, width, decay=decay, rotate=rotate)  # [T+1, D]
        if window is not None:
            factors[window + 1 :] = 0
        return F.pad(factors.cumsum(0), (0, 0, 1, 0)).to(dtype)  # [T+2, D]


def accumulate(
    weight: Tensor,
    tokens: Tensor,
    ends: Tensor,
    step: Tensor,
    *,
    decay: float,
    rotate: bool = True,
) -> Tensor:
    """a^(t) by the recurrence a^(k) = e^(k) + γ R_{-1} a^(k-1). Shapes as for `history_embed`."""
    dtype = torch.promote_types(weight.dtype, torch.float32)
    aging = turn(weight.shape[1], decay, rotate, False, dtype, weight.device)
    acc = torch.zeros(*tokens.shape[1:], weight.shape[1], dtype=dtype, device=weight.device)
    for k in range(int(step.max()) + 1 if step.numel() else 0):
        state = state_at(tokens, ends, k)
        aged = history_step(acc, F.embedding(state, weight), aging)
        acc = torch.where((k <= step)[:, None, None], aged, acc)
    return acc


def history_step(acc: Tensor, embed: Tensor, turn: Tensor) -> Tensor:
    """One step of the recurrence: embed + turn · acc, [..., D] in acc's dtype."""
    return embed + complex_product(turn, acc)


def history_embed(
    weight: Tensor, tokens: Tensor, ends: Tensor, step: Tensor, table: Tensor
) -> Tensor:
    """a^(t) from its pieces, [B, N, D]: S gathers, whatever the horizon.

    Args:
        weight: Token embeddings, [V, D].
        tokens: Tokens of the segments, [S, B, N].
        ends: Ends of all segments but the last, [S-1, B, N].
        step: Current step of each row, [B].
        table: C of `coefficient_table`, [T+2, D].
    """
    acc = torch.zeros(*tokens.shape[1:], weight.shape[1], dtype=table.dtype, device=weight.device)
    for token, oldest, newest in pieces(tokens, ends, step):
        coefficient = table[oldest] - table[newest]  # [B, N, D]
        acc = acc + complex_product(coefficient, F.embedding(token, weight).to(table.dtype))
    return acc


def history_embed_backward(
    grad: Tensor, tokens: Tensor, ends: Tensor, step: Tensor, table: Tensor, vocab_size: int
) -> Tensor:
    """Gradient of `history_embed` in weight: conj(coefficient) · grad, added into rows; [V, D]."""
    out = torch.zeros(vocab_size, grad.shape[-1], dtype=table.dtype, device=grad.device)
    for token, oldest, newest in pieces(tokens, ends, step):
        turned = complex_product(conjugate(table[oldest] - table[newest]), grad)
        out.index_add_(0, token.flatten(), turned.flatten(0, 1))
    return out


def pieces(tokens: Tensor, ends: Tensor, step: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """What each segment adds to the history, from the first segment to the last.

    Yields:
        (token, oldest, newest), [B, N] each: `token` shows in the states of age newest up to, not
        including, oldest. A segment without a state so far has oldest = newest.
    """
    num_states = (step.long()[:, None] + 1).expand(tokens.shape[1:])
    oldest = num_states
    for token, end in zip(tokens, ends, strict=False):
        newest = num_states - torch.minimum(end.long(), num_states)
        yield token.long(), oldest, newest
        oldest = newest
    yield tokens[-1].long(), oldest, torch.zeros_like(num_states)


def complex_product(factor: Tensor, x: Tensor) -> Tensor:
    """Product of vectors of interleaved pairs, broadcasting factor against x."""
    re, im = factor.unflatten(-1, (-1, 2)).unbind(-1)
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((re * even - im * odd, re * odd + im * even), dim=-1).flatten(-2)


def conjugate(factor: Tensor) -> Tensor:
    """The opposite rotation: imaginary parts change sign."""
    sign = torch.tensor([1.0, -1.0], dtype=factor.dtype, device=factor.device)
    return (factor.unflatten(-1, (-1, 2)) * sign).flatten(-2)
