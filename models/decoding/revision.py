"""The result of a decode: its final tokens, every state and action, and counts."""

from dataclasses import dataclass, fields
from enum import IntEnum

import torch
from torch import Tensor


class Action(IntEnum):
    """What a step did at a position."""

    KEEP = 0
    """A visible token stayed."""
    REMASK = 1
    """A visible token became MASK."""
    REVEAL = 2
    """MASK became a token."""
    WAIT = 3
    """MASK stayed."""


@dataclass(frozen=True)
class RevisionStats:
    """Counts per row, [B] each."""

    steps: Tensor
    """Steps taken, including the closing one."""
    forward_passes: Tensor
    """Forward passes of the model on this row, including those for guidance."""
    remasked: Tensor
    revealed: Tensor
    left_masked: Tensor
    """MASKs left after the last step, which the closing step revealed."""


@dataclass(frozen=True)
class Revision:
    """The result of a decode of B rows in K steps."""

    tokens: Tensor
    """Final state, [B, N]; no editable position is MASK."""
    trajectory: Tensor
    """States from the first to the last, [K+1, B, N] int32; a finished row repeats its last."""
    actions: Tensor
    """`Action` between consecutive states, [K, B, N] int8; KEEP once a row has finished."""
    stats: RevisionStats

    def edit_mask(self) -> Tensor:
        """Positions that were re-masked in any step, bool [B, N]: those the model chose to edit."""
        return (self.actions == Action.REMASK).any(0)


class Recorder:
    """Collects the states and actions of a batch, including those of finished rows."""

    def __init__(self, tokens: Tensor) -> None:
        self.states = [tokens.to(torch.int32)]
        self.actions: list[Tensor] = []
        self.steps = torch.zeros(tokens.shape[0], dtype=torch.long, device=tokens.device)
        self.passes = torch.zeros_like(self.steps)

    def add(self, index: Tensor, tokens: Tensor, actions: Tensor, passes: Tensor | int) -> None:
        """Record a step of the rows at `index`; the other rows keep their last state."""
        state = self.states[-1].clone()
        state[index] = tokens.to(torch.int32)
        taken = torch.zeros_like(state, dtype=torch.int8)
        taken[index] = actions
        self.states.append(state)
        self.actions.append(taken)
        self.steps[index] += 1
        self.passes[index] += passes

    def finish(self, left_masked: Tensor) -> Revision:
        trajectory = torch.stack(self.states)
        actions = torch.stack(self.actions) if self.actions else trajectory[:0].to(torch.int8)
        stats = RevisionStats(
            steps=self.steps,
            forward_passes=self.passes,
            remasked=(actions == Action.REMASK).sum((0, 2)),
            revealed=(actions == Action.REVEAL).sum((0, 2)),
            left_masked=left_masked,
        )
        return Revision(self.states[-1].long(), trajectory, actions, stats)


def join(parts: list[Revision], tokens: Tensor) -> Revision:
    """Concatenate batches, padding shorter trajectories by repeating their last state."""
    length = max(part.actions.shape[0] for part in parts)

    def padded(part: Revision) -> tuple[Tensor, Tensor]:
        missing = length - part.actions.shape[0]
        states = torch.cat([part.trajectory, part.trajectory[-1:].expand(missing, -1, -1)])
        kept = part.actions.new_full((missing, *part.actions.shape[1:]), Action.KEEP)
        return states, torch.cat([part.actions, kept])

    trajectories, actions = zip(*map(padded, parts), strict=True)
    stats = RevisionStats(
        *(
            torch.cat([getattr(part.stats, f.name) for part in parts]).to(tokens.device)
            for f in fields(RevisionStats)
        )
    )
    return Revision(
        torch.cat([part.tokens for part in parts]).to(tokens),
        torch.cat(trajectories, 1).to(tokens.device),
        torch.cat(actions, 1).to(tokens.device),
        stats,
    )
