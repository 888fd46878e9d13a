"""Sudoku boards in the terminal: what changed, step by step, in colour."""

import math

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from torch import Tensor

from remask.models import Action, Revision
from remask.pipeline.sources.sudoku_rules import conflict_cells

# Marks tell the cells apart where there is no colour.
REMASKED, REVEALED, WRONG = ("?", "black on yellow"), ("+", "black on green"), ("×", "bold red")


def show_revision(console: Console, revision: Revision, row: int) -> None:
    """Print one row's boards side by side.

    ? on yellow will be re-masked, + on green was just revealed, × in red breaks a rule.
    """
    steps = int(revision.stats.steps[row])
    panels = []
    for k in range(steps + 1):
        last = revision.actions[k - 1, row] if k > 0 else None
        following = revision.actions[k, row] if k < steps else None
        board = _board(revision.trajectory[k, row], last, following)
        panels.append(Panel(board, title=f"step {k}" if k else "start", expand=False))
    console.print(Columns(panels))


def _board(state: Tensor, last: Tensor | None, following: Tensor | None) -> Text:
    """One state, [N], marked by the actions that led to it and those that follow."""
    breaks_rule = conflict_cells(state[None].cpu().numpy())[0]
    side = math.isqrt(state.numel())
    box = math.isqrt(side)
    text = Text()
    for cell, token in enumerate(state.tolist()):
        row, column = divmod(cell, side)
        if column and column % box == 0:
            text.append("│ ")
        if column == 0 and row:
            text.append("\n")
            if row % box == 0:
                text.append("┼─".join(["──" * box] * (side // box)).removesuffix("─") + "\n")
        mark, style = WRONG if breaks_rule[cell] else (" ", "")
        if following is not None and following[cell] == Action.REMASK:
            mark, style = REMASKED
        elif last is not None and last[cell] == Action.REVEAL:
            mark, style = REVEALED
        text.append(f"{token or '·'}{mark}", style)
    return text
