"""How an image is written as tokens: row by row, each ended by a newline, between two markers.

    BOI  c c c c NL  c c c c NL  c c c c NL  EOI          a grid of 3 × 4

The id of a code is the code plus `code_offset`. The layout is Lumina-DiMOO's; a model may use other
ids.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from remask.models.ranges import Range, check_fields


@dataclass(frozen=True, kw_only=True)
class ImageLayout:
    """The ids that images are written with. The defaults are Lumina-DiMOO's."""

    code_offset: Annotated[int, Range("[0, inf)")] = 126356
    """Id of code 0."""
    num_codes: Annotated[int, Range("[1, inf)")] = 8192
    """Number of codes."""
    newline_id: Annotated[int, Range("[0, inf)")] = 126084
    """Ends each row of codes."""
    begin_id: Annotated[int, Range("[0, inf)")] = 126349
    """BOI, the marker before an image."""
    end_id: Annotated[int, Range("[0, inf)")] = 126350
    """EOI, the marker after an image."""

    def __post_init__(self) -> None:
        check_fields(self)
        markers = {name: getattr(self, name) for name in ("newline_id", "begin_id", "end_id")}
        for name, marker in markers.items():
            if self.is_code_id(marker):
                raise ValueError(f"{name} must be an id outside the codes, got {marker}")
        if len(set(markers.values())) < len(markers):
            raise ValueError(f"newline, begin and end must be different ids, got {markers}")

    def is_code_id(self, id: int) -> bool:
        return self.code_offset <= id < self.code_offset + self.num_codes

    def is_code(self, ids: Tensor) -> Tensor:
        """Whether each id is a code, bool like ids."""
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
        """The inverse of `to_tokens`: ids, [..., h · (w + 1)], to codes, int64 [..., h, w]."""
        if ids.shape[-1] != height * (width + 1):
            raise ValueError(
                f"an image of {height} × {width} codes has {height * (width + 1)} ids, including "
                f"newlines, got {ids.shape[-1]}"
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
        """Whether each id of an image is a code rather than a newline, bool [h · (w + 1)]."""
        is_cell = torch.ones(height, width + 1, dtype=torch.bool)
        is_cell[:, -1] = False
        return is_cell.flatten()

    @property
    def _last(self) -> int:
        return self.code_offset + self.num_codes - 1
