"""Sudoku revision: how many boards end right, and whether mistakes come back. SPEC §7."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models import Action, Revision
from pipeline.sources.sudoku import conflict_cells, is_valid


@dataclass(frozen=True)
class SudokuScores:
    """The paper's four metrics over a set of boards."""

    exact: float
    """Share of boards equal to their solution in every cell."""
    valid: float
    """Share of boards that break no rule."""
    replay: float
    """Of the wrong cells that were re-masked, the share later revealed as the same wrong digit."""
    conflicts: float
    """Rule-breaking cells per board."""


def score(solution: Tensor, revision: Revision) -> SudokuScores:
    """Score revised boards against their solutions, [B, N]."""
    final = revision.tokens.cpu().numpy()
    remasked, replayed = replays(solution, revision)
    return SudokuScores(
        exact=float((revision.tokens == solution).all(-1).double().mean()),
        valid=float(is_valid(final).mean()),
        replay=float(replayed.sum() / remasked.sum().clamp(min=1)),
        conflicts=float(np.mean(conflict_cells(final).sum(-1))),
    )


def replays(solution: Tensor, revision: Revision) -> tuple[Tensor, Tensor]:
    """Cells re-masked while wrong, and those later revealed as a digit so rejected; [B, N]."""
    states = revision.trajectory.long()
    vocab_size = int(states.max()) + 1 if states.numel() else 1
    rejected = states.new_zeros(*solution.shape, vocab_size, dtype=torch.bool)  # [B, N, V]
    replayed = torch.zeros_like(solution, dtype=torch.bool)
    for before, after, action in zip(states, states[1:], revision.actions, strict=False):
        again = rejected.gather(-1, after[..., None])[..., 0]
        replayed |= (action == Action.REVEAL) & again
        dropped = (action == Action.REMASK) & (before != solution)
        rejected |= torch.zeros_like(rejected).scatter_(-1, before[..., None], dropped[..., None])
    return rejected.any(-1), replayed
