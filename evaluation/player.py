"""What the report shows of one sample: a decode to step through, and pictures to compare.

A suite makes these from the samples of its own showcase, which come from a file on disk, so every
value is checked here before it reaches the page.
"""

import base64
from dataclasses import dataclass

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, kw_only=True)
class GalleryPicture:
    """A picture of the report's gallery, in the column `title`."""

    title: str
    png: str
    """A PNG file in base64."""
    alt: str
    """Text for readers who cannot see the picture."""
    caption: str = ""
    """What the column shows, for the gallery's note."""
    is_shared: bool = False
    """Whether all runs have this picture in common, so that a sheet draws it once."""
    sheet_title: str | None = None
    """Heading on a sheet; an empty one stands for the run's name. None keeps it off the sheet."""

    def __post_init__(self) -> None:
        _check_png(self.png)


@dataclass(frozen=True, kw_only=True)
class PlayerSample:
    """A decode as the player shows it: a grid of cells, and one state of the grid per step."""

    sample_id: str
    note: str = ""
    """A few words beside the sample's id, such as how the decode ended."""
    columns: int
    states: list[list[int]]
    """The token of every cell in reading order, state by state; 0 is MASK."""
    solution: list[int] | None = None
    """The expected final state. Without one, no cell is marked as wrong."""
    box: int = 0
    """Cells per side of a box with a heavy border; 0 draws no boxes."""
    symbols: str | None = None
    """The character of every token. Defaults to the token's number."""
    state_pictures: list[str] | None = None
    """A PNG file in base64 behind the grid of each state."""
    heading: str = ""
    """Heading of the sample in the gallery."""
    pictures: tuple[GalleryPicture, ...] = ()
    """The sample in the gallery; without any, the sample is in the player alone."""

    def __post_init__(self) -> None:
        grids = [*self.states, *([] if self.solution is None else [self.solution])]
        if not _is_count(self.columns) or not self.states or not self.states[0]:
            raise ValueError(f"sample {self.sample_id!r} needs columns and states")
        for grid in grids:
            if len(grid) != len(self.states[0]) or not all(self._is_token(cell) for cell in grid):
                raise ValueError(
                    f"sample {self.sample_id!r}: a state must have {len(self.states[0])} tokens"
                )
        if self.state_pictures is not None:
            if len(self.state_pictures) != len(self.states):
                raise ValueError(
                    f"sample {self.sample_id!r} has {len(self.states)} states and "
                    f"{len(self.state_pictures)} pictures of them"
                )
            for picture in self.state_pictures:
                _check_png(picture)

    def _is_token(self, cell: int) -> bool:
        is_number = type(cell) is int and cell >= 0
        return is_number and (self.symbols is None or cell < len(self.symbols))


def _is_count(value: int) -> bool:
    return type(value) is int and value > 0


def _check_png(text: str) -> None:
    if not base64.b64decode(text, validate=True).startswith(PNG_SIGNATURE):
        raise ValueError("a picture is not a PNG file")
