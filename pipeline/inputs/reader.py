"""What reads the inputs of one kind of model: the start of a decode, and its states as cells.

A request is what a person or a program asks for:

    sudoku      {"board": "4132...", "editable": "0011..."}
    text        {"prompt": "33 + 75 =", "draft": "98", "length": 16}
    image_edit  {"picture": b"...", "instruction": "make the mouse green"}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from remask.models import Backbone
from remask.pipeline.edits.images import Picture

Kind = Literal["sudoku", "text", "image_edit"]
MASK_CELL = "·"
"""How a cell shows MASK."""
END_CELL = "¶"
"""How a cell shows an end token."""


@dataclass(frozen=True)
class Start:
    """The state that a decode begins with, and what people see of it."""

    tokens: Tensor
    """The row, [N]."""
    editable: Tensor
    """True where the row may change, bool [N]."""
    shown: Tensor
    """The positions that cells show, in their order, [C]."""
    is_blank: bool
    """Whether every editable position is MASK."""
    prompt: str = ""
    """What stays fixed, in words."""
    columns: int | None = None
    """Cells per line; None for text."""
    box: int | None = None
    """Cells per side of a Sudoku's boxes."""
    notes: tuple[str, ...] = field(default=())
    """What the reader of the result should know about how the request was read."""


class Reader(Protocol):
    """Reads inputs and shows states; made for one model."""

    @property
    def kind(self) -> Kind: ...

    def start(self, request: Mapping[str, Any]) -> Start:
        """The start of a request; ValueError, in one sentence, if it cannot be read."""
        ...

    def cells(self, ids: Sequence[int]) -> list[str]:
        """Each token as text."""
        ...

    def result(self, start: Start, tokens: Tensor) -> str:
        """The answer in a final state, [N], as text; empty for pictures."""
        ...

    def pictures(self, start: Start, states: Tensor) -> list[Picture] | None:
        """The picture of each state, [K, N]; None for kinds without pictures."""
        ...


class Inputs(Protocol):
    """What inputs.json says, as a frozen dataclass: the keys of its section `source`."""

    @property
    def kind(self) -> Kind: ...

    def reader(self, folder: str, backbone: Backbone) -> Reader:
        """What reads inputs for a model.

        Args:
            folder: Where inputs.json lies, with the tokenizer.
            backbone: The model.

        Raises:
            ValueError: The tokenizer is missing, or is not the model's.
        """
        ...


def check_request(
    request: Mapping[str, Any], types: Mapping[str, type], needed: Sequence[str]
) -> None:
    """Raise ValueError unless a request has the needed keys, no unknown ones, and their types.

    A key whose value is None counts as left out.
    """
    unknown = sorted(str(name) for name in request if name not in types)
    if unknown:
        raise ValueError(f"unknown keys {unknown[:3]}; a request takes {list(types)}")
    for name in needed:
        if request.get(name) is None:
            raise ValueError(f"the request lacks {name!r}; it takes {list(types)}")
    for name, value in request.items():
        if value is not None and type(value) is not types[name]:
            raise ValueError(f"{name} must be {NAMES[types[name]]}, got {type(value).__name__}")


NAMES = {str: "text", int: "a whole number", bytes: "the bytes of a picture", bool: "true or false"}
