"""Choosing positions of a row: the highest scores, and blocks from left to right."""

import math

import torch
from torch import Tensor


def highest(score: Tensor, eligible: Tensor, count: Tensor | int) -> Tensor:
    """The `count` eligible positions with the highest scores of each row, bool [B, N].

    Of equal scores the leftmost is chosen first.

    Args:
        score: [B, N].
        eligible: Bool [B, N].
        count: A number for all rows, or one per row, [B, 1].
    """
    ranked = score.masked_fill(~eligible, -math.inf)
    # Eligible first, so that an eligible -inf still comes before what may not be chosen.
    order = torch.argsort(ranked, dim=-1, descending=True, stable=True)
    order = order.gather(-1, torch.argsort((~eligible).gather(-1, order), dim=-1, stable=True))
    rank = torch.empty_like(order)
    rank.scatter_(-1, order, torch.arange(score.shape[-1], device=score.device).expand_as(order))
    return eligible & (rank < count)


def block_index(editable: Tensor, length: int) -> Tensor:
    """Number of the block that each editable position is in, counted from the left, [B, N]."""
    return (editable.cumsum(-1) - 1).clamp(min=0) // length


def open_block(block: Tensor, is_masked: Tensor) -> Tensor:
    """The first block that holds a MASK, [B, 1]; the last block in rows without MASK."""
    return torch.where(is_masked, block, block.amax(-1, keepdim=True)).amin(-1, keepdim=True)
