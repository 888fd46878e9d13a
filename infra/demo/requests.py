"""What can be asked of the server: requests as dataclasses, which check and describe themselves.

`schema.py` turns the same dataclasses into the JSON Schema of `GET /openapi.json`, so that keys,
types, ranges and defaults cannot differ from what is checked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from remask.infra.demo.picture import read_file
from remask.infra.demo.schema import Length, check_lengths
from remask.infra.reviser import Options
from remask.models.config import from_mapping
from remask.models.ranges import Range, check_fields

MAX_STEPS = 256
"""Limit on the steps of one decode, so that no request holds up the others for long."""
Name = Annotated[str | None, Length(200)]


@dataclass(frozen=True, kw_only=True)
class DecodeOptions(Options):
    """How to decode. What is left out is decided by the checkpoint."""

    policy: Literal["revision", "absorbing", "p2", "remdm", "two_phase"] = "revision"
    """`revision` re-masks tokens that are less likely than MASK; `absorbing` only reveals; the
    others re-mask by rules of their own."""
    max_steps: Annotated[int | None, Range(f"[1, {MAX_STEPS}]")] = None
    """Limit of steps, not counting a closing one. Defaults to the tuned limit, or else to 32."""


@dataclass(frozen=True, kw_only=True)
class SudokuRequest:
    """A Sudoku board to revise."""

    kind: Literal["sudoku"]
    board: Annotated[str, Length(81)]
    """The digits in reading order; 0 or . is a blank, which is MASK."""
    editable: Annotated[str | None, Length(81)] = None
    """1 for a cell that may change and 0 for one that may not. Defaults to 1 everywhere."""
    checkpoint: Name = None
    """Name of a model of `GET /models`. Defaults to the first of this kind."""
    options: DecodeOptions = field(default_factory=DecodeOptions)

    def __post_init__(self) -> None:
        check_lengths(self)

    def start(self) -> dict[str, Any]:
        """The request as `Reviser.start` takes it."""
        return _given(board=self.board, editable=self.editable)


@dataclass(frozen=True, kw_only=True)
class TextRequest:
    """A text to revise, or to write."""

    kind: Literal["text"]
    prompt: Annotated[str, Length(20_000)]
    """What comes before the text, and is not changed."""
    draft: Annotated[str | None, Length(20_000)] = None
    """The text to revise. Without a draft the model writes one."""
    length: Annotated[int | None, Range("[1, 4096]")] = None
    """Tokens of the text. Defaults to those of the draft, or to what the model was made for."""
    checkpoint: Name = None
    """Name of a model of `GET /models`. Defaults to the first of this kind."""
    options: DecodeOptions = field(default_factory=DecodeOptions)

    def __post_init__(self) -> None:
        check_fields(self)
        check_lengths(self)

    def start(self) -> dict[str, Any]:
        """The request as `Reviser.start` takes it."""
        return _given(prompt=self.prompt, draft=self.draft, length=self.length)


@dataclass(frozen=True, kw_only=True)
class PictureRequest:
    """A picture to edit."""

    kind: Literal["image_edit"]
    picture: Annotated[str, Length(2 << 20)]
    """A PNG or JPEG file in base64, of at most 2048 × 2048 pixels."""
    instruction: Annotated[str, Length(2_000)]
    """What to change, in words."""
    checkpoint: Name = None
    """Name of a model of `GET /models`. Defaults to the first of this kind."""
    options: DecodeOptions = field(default_factory=DecodeOptions)

    def __post_init__(self) -> None:
        check_lengths(self)

    def start(self) -> dict[str, Any]:
        """The request as `Reviser.start` takes it."""
        return {"picture": read_file(self.picture), "instruction": self.instruction}


ReviseRequest = SudokuRequest | TextRequest | PictureRequest
KINDS: dict[str, type[ReviseRequest]] = {
    "sudoku": SudokuRequest,
    "text": TextRequest,
    "image_edit": PictureRequest,
}


def read_request(values: Mapping[str, Any]) -> ReviseRequest:
    """Check a request. Raises ValueError with one sentence that names the key and its value."""
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind must be one of {list(KINDS)}, got {kind!r}")
    return from_mapping(KINDS[kind], values, "request")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
