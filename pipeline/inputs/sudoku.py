"""Sudoku boards as inputs: digits in reading order, and which of them may change."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from remask.models import Backbone
from remask.models.ranges import check_fields
from remask.pipeline.inputs.reader import MASK_CELL, Start, check_request
from remask.pipeline.sources.sudoku_rules import parse_board

MASK_ID = 0


@dataclass(frozen=True, kw_only=True)
class SudokuInputs:
    """Boards of one size."""

    kind: Literal["sudoku"] = "sudoku"
    side: Literal[4, 9] = 9

    def __post_init__(self) -> None:
        check_fields(self)

    def reader(self, folder: str, backbone: Backbone) -> "SudokuReader":
        if backbone.mask_id != MASK_ID or backbone.vocab_size <= self.side:
            raise ValueError(
                f"{folder} says that it takes boards of side {self.side}, but its model has "
                f"{backbone.vocab_size} tokens and MASK {backbone.mask_id}"
            )
        return SudokuReader(self.side)


class SudokuReader:
    """Reads boards of one size."""

    kind: Literal["sudoku"] = "sudoku"

    def __init__(self, side: int) -> None:
        self._side = side

    def start(self, request: Mapping[str, Any]) -> Start:
        check_request(request, {"board": str, "editable": str}, ["board"])
        board, editable = read_board(request["board"], request.get("editable"), self._side**2)
        return Start(
            tokens=board,
            editable=editable,
            shown=torch.arange(len(board)),
            is_blank=bool((board[editable] == MASK_ID).all()),
            columns=self._side,
            box=math.isqrt(self._side),
        )

    def cells(self, ids: Sequence[int]) -> list[str]:
        return [str(digit) if digit else MASK_CELL for digit in ids]

    def result(self, start: Start, tokens: Tensor) -> str:
        return "".join(map(str, tokens.tolist()))

    def pictures(self, start: Start, states: Tensor) -> None:
        return None


def read_board(digits: str, mask: str | None, cells: int) -> tuple[Tensor, Tensor]:
    """A board and which of its cells may change, [N] each.

    Args:
        digits: The board in reading order, 0 or . for a blank.
        mask: As many digits 0 and 1, where 1 marks a cell that may change. Defaults to all.
        cells: Number of cells of the model's boards.
    """
    board = parse_board(digits)
    if board.size != cells:
        raise ValueError(
            f"this checkpoint takes boards of {cells} cells, got {board.size}: {digits}"
        )
    mask = "1" * cells if mask is None else mask
    if len(mask) != cells or set(mask) - {"0", "1"}:
        raise ValueError(f"a board is followed by {cells} 0s and 1s or nothing, got {mask!r}")
    editable = torch.tensor([c == "1" for c in mask])
    tokens = torch.from_numpy(board.astype("int64"))
    stuck = ((tokens == MASK_ID) & ~editable).nonzero()
    if len(stuck):
        raise ValueError(f"cell {int(stuck[0]) + 1} is blank and may not change; let it change")
    return tokens, editable
