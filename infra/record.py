"""What happened in a decode, as plain values: `remask revise --json` and the page's server.

A `Record` is one decode, a `Step` one of its states with what was done to get there.
"""

import base64
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from remask.models import Action, Revision
from remask.pipeline.edits.images import Picture, to_png
from remask.pipeline.inputs.reader import END_CELL, Kind, Reader, Start

Done = Literal["start", "keep", "remask", "reveal", "wait"]
DONE: dict[int, Done] = {
    Action.KEEP: "keep",
    Action.REMASK: "remask",
    Action.REVEAL: "reveal",
    Action.WAIT: "wait",
}
DIGITS = 6
"""Decimals of a probability."""


@dataclass(frozen=True)
class Step:
    """A state, and what was done to get there from the state before it."""

    cells: list[str]
    """The tokens as text; · is MASK and ¶ an end token."""
    actions: list[Done]
    p_mask: list[float | None]
    """The model's p(MASK) at each cell of this state, before it acts; None where it did not look:
    at cells that may not change, in the last state, and before a closing step."""
    picture: str | None = None
    """A PNG file in base64, with masked cells in grey."""


@dataclass(frozen=True)
class Counts:
    """What the decode took, over all cells."""

    steps: int
    forward_passes: int
    remasked: int
    revealed: int
    replaced: int
    """Cells whose last token is not the first one they showed."""


@dataclass(frozen=True)
class Record:
    """One decode. In text, cells are those of the response; the prompt is beside them."""

    kind: Kind
    checkpoint: str
    columns: int | None
    box: int | None
    prompt: str
    steps: list[Step]
    editable: list[bool]
    result: str
    picture: str | None
    counts: Counts
    note: str

    def to_json(self) -> dict[str, Any]:
        """The record as values that JSON has."""
        return dataclasses.asdict(self)


def make_record(
    reader: Reader,
    checkpoint: str,
    start: Start,
    revision: Revision,
    beliefs: Sequence[Tensor],
    mask_id: int,
    notes: Sequence[str] = (),
) -> Record:
    """The record of a decode of one row.

    Args:
        reader: Shows the states.
        checkpoint: Name of the model.
        start: Where the decode began.
        revision: Its result, of one row.
        beliefs: p(MASK) in the states that the model was run on, from the first on, [N] each; NaN
            where the model did not look.
        mask_id: Id of MASK.
        notes: What people should know besides the start's own notes.
    """
    num_steps = int(revision.stats.steps[0])
    states = revision.trajectory[: num_steps + 1, 0].cpu()
    pictures = reader.pictures(start, states)
    steps = [
        make_step(
            reader,
            start,
            states[k],
            None if k == 0 else revision.actions[k - 1, 0].cpu(),
            beliefs[k] if k < len(beliefs) else None,
            None if pictures is None else pictures[k],
        )
        for k in range(num_steps + 1)
    ]
    if reader.kind == "text":
        steps = without_tail(steps)
    shown = start.shown[: len(steps[0].cells)]
    return Record(
        kind=reader.kind,
        checkpoint=checkpoint,
        columns=start.columns,
        box=start.box,
        prompt=start.prompt,
        steps=steps,
        editable=start.editable[shown].tolist(),
        result=reader.result(start, states[-1]),
        picture=steps[-1].picture,
        counts=Counts(
            steps=num_steps,
            forward_passes=int(revision.stats.forward_passes[0]),
            remasked=int(revision.stats.remasked[0]),
            revealed=int(revision.stats.revealed[0]),
            replaced=_count_replaced(states, mask_id),
        ),
        note="; ".join((*start.notes, *notes)),
    )


def make_step(
    reader: Reader,
    start: Start,
    state: Tensor,
    actions: Tensor | None,
    p_mask: Tensor | None,
    picture: Picture | None = None,
) -> Step:
    """One state, [N], as it is shown.

    Args:
        reader: Shows it.
        start: Where the decode began.
        state: Its tokens.
        actions: What led to it, [N]; None for the first state.
        p_mask: p(MASK) in it, [N]; None where the model was not run on it.
        picture: Its picture, if the kind has any.
    """
    shown = start.shown
    probabilities: list[float | None] = [None] * len(shown)
    if p_mask is not None:
        values = p_mask[shown].double().tolist()
        probabilities = [None if x != x else round(x, DIGITS) for x in values]
    return Step(
        cells=reader.cells(state[shown].tolist()),
        actions=["start"] * len(shown)
        if actions is None
        else [DONE[x] for x in actions[shown].tolist()],
        p_mask=probabilities,
        picture=None if picture is None else base64.b64encode(to_png(picture)).decode(),
    )


def without_tail(steps: list[Step]) -> list[Step]:
    """The steps without the last cells that hold an end token in every state, but for the first of
    them."""
    length = 1 + max((at for x in steps for at, cell in enumerate(x.cells) if cell != END_CELL),
                     default=-1)  # fmt: skip
    return [
        dataclasses.replace(
            x,
            cells=x.cells[: length + 1],
            actions=x.actions[: length + 1],
            p_mask=x.p_mask[: length + 1],
        )
        for x in steps
    ]


def _count_replaced(states: Tensor, mask_id: int) -> int:
    """Positions whose last token is not the first one they showed; states are [K, N]."""
    is_visible = states != mask_id
    first = states.gather(0, is_visible.to(torch.int8).argmax(0, keepdim=True))[0]
    return int(((first != states[-1]) & is_visible.any(0)).sum())
