"""A loss and what is logged of it."""

from dataclasses import dataclass

import torch
from torch import Tensor

BINS = 15
"""Number of bins of the calibration histogram over p(MASK)."""


@dataclass(frozen=True)
class Part:
    """Unweighted sums over the positions of one part of the loss; scalars."""

    loss_sum: Tensor
    count: Tensor
    num_correct: Tensor
    """Positions at which the revision rule would take the oracle action."""

    @staticmethod
    def sum_over(loss: Tensor, is_correct: Tensor, where: Tensor) -> "Part":
        """Sum per-position values [P] over the positions in `where`, bool [P]."""
        return Part(loss.detach()[where].sum(), where.sum(), (is_correct & where).sum())


@dataclass(frozen=True)
class OracleLoss:
    """The loss to minimise, its three parts and its optional terms."""

    total: Tensor
    """Scalar, differentiable; all other fields are detached."""
    reveal: Part
    """Sums over positions whose state is MASK."""
    mask: Part
    """Sums over positions whose state is a wrong token."""
    keep: Part
    """Sums over positions whose state is the target."""
    unlikelihood: Tensor
    """Mean of the unlikelihood term before its weight; 0 if its weight is 0."""
    ordering: Tensor
    """Mean of the ordering term before its weight; 0 if its weight is 0."""
    calibration: Tensor
    """Histogram of visible positions by p(MASK), [3, BINS]: the number of positions, the sum of
    p(MASK), and the number of wrong tokens. The last two are equal if p(MASK) is calibrated."""

    @staticmethod
    def without_parts(total: Tensor) -> "OracleLoss":
        """A loss of which only the total is logged."""
        zero = total.detach().new_zeros(())
        empty = Part(zero, zero.long(), zero.long())
        calibration = zero.new_zeros(3, BINS, dtype=torch.float64)
        return OracleLoss(total, empty, empty, empty, zero, zero, calibration)
