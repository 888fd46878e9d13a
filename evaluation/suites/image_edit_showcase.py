"""Image edits as the report shows them: small PNG files of each sample, and of every step."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from remask.evaluation.player import GalleryPicture, PlayerSample
from remask.pipeline.edits import EditPair
from remask.pipeline.edits.images import Picture, to_png

Bools = NDArray[np.bool_]

MAX_SIDE, COLOURS = 192, 128
"""Limit on a picture's longer side, in pixels. Larger pictures are scaled down and reduced to a
palette of so many colours, because photographs take many bytes."""
GREY = 170
"""Grey level of a masked cell."""
STRIPE = 3
"""Width of the stripes over a re-masked cell, in pixels."""


def draw_edit(
    pair: EditPair, *, steps: list[Picture], is_masked: Bools, remasked: Bools, source: Picture
) -> dict[str, Any]:
    """The pictures of a sample, as plain values for `showcase.json`.

    Args:
        pair: The edit.
        steps: The picture of every state that is shown, up to the last one.
        is_masked: Whether each cell of each state is MASK, [states, h, w].
        remasked: Whether each cell was re-masked at some step, [h, w].
        source: The source picture as the tokeniser reconstructs it.
    """
    rows, columns = remasked.shape
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


def read_edit(sample: dict[str, Any]) -> PlayerSample:
    """A sample of `showcase.json` as the report takes it; its tokens are codes plus 1."""
    rows, columns, pictures = sample["rows"], sample["columns"], sample["pictures"]
    if not all(type(n) is int and n > 0 for n in (rows, columns)):
        raise ValueError(f"an edit needs rows and columns, got {rows!r} and {columns!r}")
    if len(sample["solution"]) != rows * columns:
        raise ValueError(f"sample {sample['sample_id']!r}: a grid is {rows * columns} codes")
    note = str(sample.get("note") or "")
    starts_masked = 0 in sample["states"][0]
    return PlayerSample(
        sample_id=str(sample["sample_id"]),
        note=note,
        columns=columns,
        solution=sample["solution"],
        states=sample["states"],
        state_pictures=sample["steps"],
        heading=str(sample["instruction"]),
        pictures=(
            GalleryPicture(
                title="source",
                png=pictures["source"],
                alt="the source",
                is_shared=True,
                sheet_title="source",
            ),
            GalleryPicture(
                title="edit", png=pictures["edit"], alt=f"the edit: {note}", sheet_title=""
            ),
            GalleryPicture(
                title="re-masked",
                png=pictures["mask"],
                alt="the source with the re-masked cells striped",
                caption="Re-masked cells are striped.",
                sheet_title=None if starts_masked else "its re-masked cells",
            ),
            GalleryPicture(
                title="difference",
                png=pictures["difference"],
                alt="how far the edit is from the source",
                caption="The difference is taken to the tokeniser's reconstruction of the source: "
                "white where nothing changed, then red and black, the further a pixel moved.",
            ),
            GalleryPicture(
                title="target",
                png=pictures["target"],
                alt="the target",
                is_shared=True,
                sheet_title="target",
            ),
        ),
    )


def to_text(picture: Picture) -> str:
    """A PNG file in base64, of at most MAX_SIDE pixels per side."""
    longer, colours = max(picture.shape[:2]), None
    if longer > MAX_SIDE:
        height, width = (max(1, x * MAX_SIDE // longer) for x in picture.shape[:2])
        small = Image.fromarray(picture).resize((width, height), Image.Resampling.BOX)
        picture, colours = np.asarray(small), COLOURS
    return base64.b64encode(to_png(picture, colours)).decode()


def heat(edit: Picture, source: Picture) -> Picture:
    """A heat map of the distance from the source: white where equal, then red, then black."""
    distance = np.abs(edit.astype(np.float64) - source).max(-1) / 255
    channels = (1 - np.maximum(0, 2 * distance - 1), 1 - 2 * distance, 1 - 2 * distance)
    return (255 * np.stack(channels, -1).clip(0, 1)).round().astype(np.uint8)


def with_stripes(picture: Picture, cells: Bools) -> Picture:
    """The picture faded, with dark stripes over some cells; small pictures are enlarged first."""
    factor = max(1, MAX_SIDE // max(picture.shape[:2]))
    picture = picture.repeat(factor, 0).repeat(factor, 1)
    faint = 255 - (255 - picture.astype(np.float64)) * 0.35
    diagonal = np.add.outer(*(np.arange(n) for n in picture.shape[:2]))
    striped = _pixels(cells, picture) & (diagonal // STRIPE % 2 == 0)
    return np.where(striped[..., None], 40, faint).round().astype(np.uint8)


def with_grey(picture: Picture, cells: Bools) -> Picture:
    """The picture with some cells filled in grey."""
    return np.where(_pixels(cells, picture)[..., None], GREY, picture).astype(np.uint8)


def _pixels(cells: Bools, picture: Picture) -> Bools:
    """A grid of cells as pixels of the picture."""
    rows, columns = (n // m for n, m in zip(picture.shape[:2], cells.shape, strict=True))
    return cells.repeat(rows, 0).repeat(columns, 1)
