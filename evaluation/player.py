"""What the report shows of one sample: a decode to step through, an answer, pictures to compare.

A suite makes these from the samples of its own showcase, which come from a file on disk, so every
value is checked here before it reaches the page.
"""

import base64
from dataclasses import dataclass
from typing import Any

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
class TextAnswer:
    """A question, what was answered, and the verdict."""

    prompt: str
    response: str
    is_right: bool
    found: str = ""
    """The answer that was found in the response, if that is less than the response."""
    expected: str = ""
    """The right answer, if the suite knows it."""
    detail: str = ""
    """More about the verdict, such as the outcome of tests."""

    def __post_init__(self) -> None:
        for name in ("prompt", "response", "found", "expected", "detail"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"an answer's {name} must be text, got {getattr(self, name)!r}")
        if not isinstance(self.is_right, bool):
            raise ValueError(f"an answer is right or wrong, got {self.is_right!r}")


@dataclass(frozen=True, kw_only=True)
class PlayerSample:
    """A decode as the player shows it: cells, and one state of all cells per step."""

    sample_id: str
    note: str = ""
    """A few words beside the sample's id, such as how the decode ended."""
    columns: int | None = None
    """Cells of a row. Without it, cells are tokens of running text."""
    states: list[list[int]]
    """The token of every cell in reading order, state by state; 0 is MASK. Only an answer may have
    none, which keeps it out of the player."""
    steps: list[int] | None = None
    """Number of the step after which each state stood. Defaults to 0, 1, 2, ..."""
    solution: list[int] | None = None
    """The expected final state. Without one, no cell is marked as wrong."""
    box: int = 0
    """Cells per side of a box with a heavy border; 0 draws no boxes."""
    symbols: str | list[str] | None = None
    """The text of every token. Defaults to the token's number."""
    state_pictures: list[str] | None = None
    """A PNG file in base64 behind the grid of each state."""
    answer: TextAnswer | None = None
    """What was asked and answered, for samples in text."""
    heading: str = ""
    """Heading of the sample in the gallery."""
    pictures: tuple[GalleryPicture, ...] = ()
    """The sample in the gallery; without pictures or an answer, it is in the player alone."""

    def __post_init__(self) -> None:
        if self.columns is not None and not _is_count(self.columns):
            raise ValueError(f"sample {self.sample_id!r} needs columns, got {self.columns!r}")
        if self.states == [] and self.answer is not None and self.solution is None:
            return
        if not self.states or not self.states[0]:
            raise ValueError(f"sample {self.sample_id!r} needs states")
        if not isinstance(self.symbols, str | None) and not _are_texts(self.symbols):
            raise ValueError(f"sample {self.sample_id!r}: symbols must be text")
        grids = [*self.states, *([] if self.solution is None else [self.solution])]
        for grid in grids:
            if len(grid) != len(self.states[0]) or not all(self._is_token(cell) for cell in grid):
                raise ValueError(
                    f"sample {self.sample_id!r}: a state must have {len(self.states[0])} tokens"
                )
        if self.steps is not None and not self._are_steps(self.steps):
            raise ValueError(f"sample {self.sample_id!r}: each state needs the number of its step")
        if self.state_pictures is not None:
            if len(self.state_pictures) != len(self.states):
                raise ValueError(
                    f"sample {self.sample_id!r} has {len(self.states)} states and "
                    f"{len(self.state_pictures)} pictures of them"
                )
            for picture in self.state_pictures:
                _check_png(picture)

    @property
    def is_playable(self) -> bool:
        return bool(self.states)

    @property
    def telling(self) -> tuple[bool, bool, int]:
        """How well the sample shows revision; the largest is shown first.

        A sample should have been wrong or written wrong, be right in the end, and be re-masked on
        the way, more often rather than less.
        """
        if not self.states:
            return False, False, 0
        pairs = zip(self.states, self.states[1:], strict=False)
        remasked = sum(
            old != 0 and new == 0 for pair in pairs for old, new in zip(*pair, strict=True)
        )
        first = [next((x for x in cell if x), 0) for cell in zip(*self.states, strict=True)]
        is_changed = first != self.states[-1]
        is_right = self.states[-1] == self.solution
        if self.answer is not None:
            is_right = self.answer.is_right
        return is_right and is_changed and remasked > 0, is_right, remasked

    def _is_token(self, cell: int) -> bool:
        is_number = type(cell) is int and cell >= 0
        return is_number and (self.symbols is None or cell < len(self.symbols))

    def _are_steps(self, steps: Any) -> bool:
        return (
            isinstance(steps, list)
            and len(steps) == len(self.states)
            and all(type(step) is int and step >= 0 for step in steps)
            and steps == sorted(set(steps))
        )


def _is_count(value: int) -> bool:
    return type(value) is int and value > 0


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(text, str) for text in values)


def _check_png(text: str) -> None:
    if not base64.b64decode(text, validate=True).startswith(PNG_SIGNATURE):
        raise ValueError("a picture is not a PNG file")
