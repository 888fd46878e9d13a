"""The head, applied to a chunk of positions at a time.

Logits of a large vocabulary never exist for a whole batch: each chunk's are reduced to a few values
per position, and computed again for the gradient.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 1 << 24
"""Logits that may exist at once."""

Head = Callable[[Tensor], Tensor]
"""Hidden states [P, D] to logits [P, V]."""


def num_chunks(positions: int, vocab_size: int) -> int:
    """The number of calls of the head for a number of positions."""
    return max(1, math.ceil(positions / _chunk_size(vocab_size)))


def map_logits(
    reduce: Callable[..., tuple[Tensor, ...]],
    head: Head,
    hidden: Tensor,
    *columns: Tensor,
    vocab_size: int,
    min_chunks: int = 1,
) -> tuple[Tensor, ...]:
    """Apply `reduce` to the logits of all positions, chunk by chunk.

    Args:
        reduce: Takes float32 logits [P, V] and the columns, [P] each; returns tensors, [P] each.
        head: Hidden states [P, D] to logits [P, V].
        hidden: Hidden states, [P, D].
        columns: Further values of each position, [P] each.
        vocab_size: V, which sets the number of positions in a chunk.
        min_chunks: Least number of calls of the head. Where ZeRO 3 partitions the head's weights,
            every call gathers them from all ranks, so all ranks must make the same number; chunks
            beyond a rank's positions are empty.

    Returns:
        What `reduce` returns, over all positions.
    """
    values = (hidden, *columns)
    chunks = list(zip(*(x.split(_chunk_size(vocab_size)) for x in values), strict=True))
    chunks += [tuple(x[:0] for x in values)] * (min_chunks - len(chunks))

    def run(hidden: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        return reduce(head(hidden).float(), *columns)

    if len(chunks) > 1 and torch.is_grad_enabled():
        reduced = [checkpoint(run, *chunk, use_reentrant=False) for chunk in chunks]
    else:
        reduced = [run(*chunk) for chunk in chunks]
    return tuple(torch.cat(x) for x in zip(*reduced, strict=True))


def select(log_probs: Tensor, ids: Tensor) -> Tensor:
    """log p of one id per position, [P]."""
    return log_probs.gather(-1, ids[:, None])[:, 0]


def floored_loss(log_probs: Tensor, floor: float) -> Tensor:
    """-log max(p, ε) with the gradient of -log p, so that positions below ε still learn."""
    exact = -log_probs
    return exact + (exact.clamp(max=-math.log(floor)) - exact).detach()


def best_token(logits: Tensor, mask_id: int) -> Tensor:
    """The most probable token other than MASK, [P]: what the revision rule reveals."""
    mask = torch.tensor(mask_id, device=logits.device)
    return logits.detach().index_fill(-1, mask, -math.inf).argmax(-1)


def _chunk_size(vocab_size: int) -> int:
    return max(1, CHUNK_ELEMENTS // vocab_size)
