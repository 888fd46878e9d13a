"""How an image lies in a token sequence: row by row, a newline after each, between two marks.

    BOI  c c c c NL  c c c c NL  c c c c NL  EOI          a grid of 3 × 4

Codes are ids from `code_offset` on. The layout is Lumina-DiMOO's, with whatever ids a model has.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ImageLayout:
    """The ids that images are written with. The defaults are Lumina-DiMOO's."""

    code_offset: int = 126356
    """Id of code 0."""
    num_codes: int = 8192
    newline_id: int = 126084
    """Stands after each row."""
    begin_id: int = 126349
    """BOI, before an image."""
    end_id: int = 126350
    """EOI, after it."""

    def __post_init__(self) -> None:
        if self.num_codes < 1 or self.code_offset < 0:
            raise ValueError(
                "an image layout needs num_codes of at least 1 and code_offset of at least 0, got "
                f"{self.num_codes}, {self.code_offset}"
            )
        marks = {name: getattr(self, name) for name in ("newline_id", "begin_id", "end_id")}
        for name, mark in marks.items():
            if mark < 0 or self.is_code_id(mark):
                raise ValueError(f"{name} must be an id outside the codes, got {mark}")
        if len(set(marks.values())) < len(marks):
            raise ValueError(f"newline, begin and end must be different ids, got {marks}")

    def is_code_id(self, id: int) -> bool:
        return self.code_offset <= id < self.code_offset + self.num_codes

    def is_code(self, ids: Tensor) -> Tensor:
        """Where codes stand, bool like ids."""
        return (ids >= self.code_offset) & (ids < self.code_offset + self.num_codes)

    def to_tokens(self, codes: Tensor) -> Tensor:
        """A grid of codes, [..., h, w], to ids with newlines, int64 [..., h · (w + 1)]."""
        outside = (codes < 0) | (codes >= self.num_codes)
        if outside.any():
            place = outside.nonzero()[0].tolist()
            raise ValueError(
                f"codes must lie below num_codes {self.num_codes}, got "
                f"{int(codes[tuple(place)])} at {place}"
            )
        ids = codes.long() + self.code_offset
        newlines = ids.new_full((*ids.shape[:-1], 1), self.newline_id)
        return torch.cat([ids, newlines], -1).flatten(-2)

    def to_codes(self, ids: Tensor, height: int, width: int) -> Tensor:
        """What `to_tokens` gave, [..., h · (w + 1)], back to its grid, int64 [..., h, w]."""
        if ids.shape[-1] != height * (width + 1):
            raise ValueError(
                f"an image of {height} × {width} codes has {height * (width + 1)} ids, newlines "
                f"among them, got {ids.shape[-1]}"
            )
        grid = ids.long().unflatten(-1, (height, width + 1))
        codes, newlines = grid[..., :-1], grid[..., -1]
        for bad, value, rule in (
            (~self.is_code(codes), codes, f"codes are ids {self.code_offset} .. {self._last}"),
            (newlines != self.newline_id, newlines, f"a row ends in newline {self.newline_id}"),
        ):
            if bad.any():
                place = bad.nonzero()[0].tolist()
                raise ValueError(f"{rule}, got {int(value[tuple(place)])} at {place}")
        return codes - self.code_offset

    def cells(self, height: int, width: int) -> Tensor:
        """Which of an image's ids are codes and which newlines, bool [h · (w + 1)]."""
        is_cell = torch.ones(height, width + 1, dtype=torch.bool)
        is_cell[:, -1] = False
        return is_cell.flatten()

    @property
    def _last(self) -> int:
        return self.code_offset + self.num_codes - 1
