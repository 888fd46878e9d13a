"""Pictures for the report: an edit, what it touched, and its steps, as small PNG files in text."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.edits import EditPair
from pipeline.images import Picture, to_png

Bools = NDArray[np.bool_]

MOST_PIXELS = 192
"""Per side; larger pictures are scaled down."""
GREY = 170
"""Level of a masked cell."""
STRIPE = 3
"""Pixels of a stripe over a cell that was re-masked."""


def draw_edit(
    pair: EditPair, *, steps: list[Picture], is_masked: Bools, source: Picture
) -> dict[str, Any]:
    """What the report shows of a sample.

    Args:
        pair: The edit.
        steps: The picture of every state.
        is_masked: Which cells of each state are MASK, [K+1, h, w].
        source: The source picture as the tokeniser gives it back.
    """
    _, rows, columns = is_masked.shape
    remasked = (is_masked[1:] & ~is_masked[:-1]).any(0)
    pictures = {
        "source": pair.source,
        "target": pair.target,
        "edit": steps[-1],
        "mask": with_stripes(source, remasked),
        "difference": heat(steps[-1], source),
    }
    return {
        "rows": rows,
        "columns": columns,
        "pictures": {name: to_text(picture) for name, picture in pictures.items()},
        "steps": [
            to_text(with_grey(x, masked)) for x, masked in zip(steps, is_masked, strict=True)
        ],
    }


def to_text(picture: Picture) -> str:
    """A PNG file in base64, of at most MOST_PIXELS per side."""
    most = max(picture.shape[:2])
    if most > MOST_PIXELS:
        height, width = (max(1, x * MOST_PIXELS // most) for x in picture.shape[:2])
        small = Image.fromarray(picture).resize((width, height), Image.Resampling.BOX)
        picture = np.asarray(small)
    return base64.b64encode(to_png(picture)).decode()


def heat(edit: Picture, source: Picture) -> Picture:
    """How far each pixel is from the source's: white where it is equal, then red, then black."""
    off = np.abs(edit.astype(np.float64) - source).max(-1) / 255
    channels = (1 - np.maximum(0, 2 * off - 1), 1 - 2 * off, 1 - 2 * off)
    return (255 * np.stack(channels, -1).clip(0, 1)).round().astype(np.uint8)


def with_stripes(picture: Picture, cells: Bools) -> Picture:
    """The picture faint, with dark stripes over some cells."""
    faint = 255 - (255 - picture.astype(np.float64)) * 0.35
    at = np.add.outer(*(np.arange(n) for n in picture.shape[:2]))
    striped = _pixels(cells, picture) & (at // STRIPE % 2 == 0)
    return np.where(striped[..., None], 40, faint).round().astype(np.uint8)


def with_grey(picture: Picture, cells: Bools) -> Picture:
    """The picture with some cells blank."""
    return np.where(_pixels(cells, picture)[..., None], GREY, picture).astype(np.uint8)


def _pixels(cells: Bools, picture: Picture) -> Bools:
    """Cells of a grid as pixels of the picture."""
    rows, columns = (n // m for n, m in zip(picture.shape[:2], cells.shape, strict=True))
    return cells.repeat(rows, 0).repeat(columns, 1)
