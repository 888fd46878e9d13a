"""Steps of a decode in the terminal: what was re-masked and revealed, with and without colour.

    start    8+3=9;9-4=6;6+2=8¶
    step 1   8+3=9;9-4=[-6];[-6]+2=[-8]¶        re-masked: what stood there until now
    step 2   8+3=9;9-4=[+5];[+5]+2=[+7]¶        revealed: what stands there now

MASK that was there before is ▒.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from remask.infra.record import Record, Step
from remask.pipeline.inputs.reader import END_CELL, MASK_CELL
from remask.pipeline.runtime.terminal import visible

MASK_SIGN = "▒"
LEGEND = f"[-x] re-masked, [+x] revealed, {MASK_SIGN} still MASK, {END_CELL} the end"
STYLES = {"remask": "black on yellow strike", "reveal": "black on green"}
SIGNS = {"remask": "-", "reveal": "+"}


def show_text(console: Console, record: Record) -> None:
    """Print the steps of a response under each other."""
    console.print(Text("\n".join(map(visible, record.prompt.split("\n")))))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for number in range(len(record.steps)):
        table.add_row(step_name(number), text_step(record.steps, number))
    console.print(table)


def step_name(number: int) -> str:
    return f"step {number}" if number else "start"


def text_step(steps: Sequence[Step], number: int) -> Text:
    """One state of a response, marked by what was done to get there."""
    step, text = steps[number], Text()
    before = steps[number - 1].cells if number else step.cells
    shown = _length(step)
    marked = zip(step.actions[:shown], step.cells, before, strict=False)
    for action, cells in groupby(marked, key=lambda x: x[0]):
        group = list(cells)
        if action in SIGNS:
            # Of a re-masked cell people want to see what it was.
            words = _joined(old if action == "remask" else new for _, new, old in group)
            text.append(f"[{SIGNS[action]}{words}]", STYLES[action])
        else:
            text.append(_joined(new for _, new, _ in group))
    return text


def show_pictures(console: Console, record: Record) -> None:
    """Print what happened to the cells of a picture, a grid per step."""
    marks = {"remask": "-", "reveal": "+"}
    panels = []
    for number, step in enumerate(record.steps):
        text = Text()
        for at, (cell, action) in enumerate(zip(step.cells, step.actions, strict=True)):
            if at and at % (record.columns or 1) == 0:
                text.append("\n")
            mark = marks.get(action, MASK_SIGN if cell == MASK_CELL else ".")
            text.append(f"{mark} ", STYLES.get(action, ""))
        panels.append(Panel(text, title=step_name(number), expand=False))
    console.print(Columns(panels))


def summary(record: Record) -> str:
    """The counts of a decode, in a line."""
    counts = record.counts
    what = {"sudoku": "cells", "text": "tokens", "image_edit": "cells"}[record.kind]
    return (
        f"{counts.steps} steps, {counts.forward_passes} forward passes: {counts.remasked} {what} "
        f"re-masked, {counts.revealed} revealed, {counts.replaced} replaced"
    )


def _length(step: Step) -> int:
    """Number of cells up to the first of the end tokens that close a state, and to the last cell
    that something was done to."""
    busy = [
        at
        for at, (cell, action) in enumerate(zip(step.cells, step.actions, strict=True))
        if cell != END_CELL or action in SIGNS
    ]
    return min(len(step.cells), busy[-1] + 2 if busy else 1)


def _joined(cells: Iterable[str]) -> str:
    """Cells as one text in a line: MASK, line ends and control characters as signs."""
    words = (MASK_SIGN if x == MASK_CELL else x for x in cells)
    return visible("".join(words).replace("\n", "⏎"))
