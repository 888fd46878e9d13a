"""Sudoku boards in the terminal: what changed, step by step, in colour."""

import math

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from torch import Tensor

from models import Action, Revision

STYLES = {Action.REMASK: "black on yellow", Action.REVEAL: "black on green"}
WRONG = "bold red"


def show_revision(
    console: Console, revision: Revision, row: int, solution: Tensor | None = None
) -> None:
    """Print one row's boards side by side: yellow will be re-masked, green was just revealed."""
    steps = int(revision.stats.steps[row])
    panels = []
    for k in range(steps + 1):
        came = revision.actions[k - 1, row] if k > 0 else None
        goes = revision.actions[k, row] if k < steps else None
        board = _board(revision.trajectory[k, row], came, goes, solution)
        panels.append(Panel(board, title=f"step {k}" if k else "start", expand=False))
    console.print(Columns(panels))


def _board(
    state: Tensor, came: Tensor | None, goes: Tensor | None, solution: Tensor | None
) -> Text:
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
        style = WRONG if solution is not None and token and token != solution[cell] else ""
        if goes is not None and goes[cell] == Action.REMASK:
            style = STYLES[Action.REMASK]
        elif came is not None and came[cell] == Action.REVEAL:
            style = STYLES[Action.REVEAL]
        text.append(str(token) if token else "·", style)
        text.append(" ")
    return text
