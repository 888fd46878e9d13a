"""One picture of an evaluation's samples: what all runs share, then what each run made of it."""

import base64

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from remask.evaluation.report.gallery import GallerySample, make_gallery
from remask.evaluation.report.results import Evaluation
from remask.pipeline.edits.images import ImageFile, Picture

TILE, LINE, PAD = 160, 24, 4
"""Side of a picture with its margins, height of a line of text, width of a margin; in pixels."""

Column = tuple[str, str]
"""The run's label, empty for pictures that all runs share, and the column's heading."""


def draw_sheet(evaluation: Evaluation) -> Picture:
    """Draw the samples, one row each.

    Raises:
        ValueError: No sample has pictures.
    """
    samples = make_gallery(evaluation).samples
    if not samples:
        raise ValueError(f"{evaluation.uri} has no edited pictures to show")
    rows = [(sample.heading, _sheet_row(sample)) for sample in samples]
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    sheet = Image.new("RGB", (TILE * len(columns), (TILE + LINE) * len(rows) + LINE), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=LINE * 0.6)
    for i, (_, heading) in enumerate(columns):
        pen.text((i * TILE + PAD, PAD), heading, "black", font)
    for i, (heading, row) in enumerate(rows):
        top = LINE + i * (TILE + LINE)
        pen.text((PAD, top + PAD), heading, "black", font)
        for column, png in row.items():
            picture = ImageFile.read(base64.b64decode(png), f"{evaluation.uri}: {column[1]}").image
            sheet.paste(_scaled(picture), (columns.index(column) * TILE + PAD, top + LINE))
    return np.asarray(sheet)


def _sheet_row(sample: GallerySample) -> dict[Column, str]:
    """The pictures of a sample in base64: those that the runs share, then those of each run."""
    shared: dict[Column, str] = {}
    own: dict[Column, str] = {}
    for run in sample.runs:
        for picture in run.sample.pictures:
            if picture.sheet_title is not None and picture.is_shared:
                shared.setdefault(("", picture.sheet_title), picture.png)
            elif picture.sheet_title is not None:
                own[run.label, picture.sheet_title or run.label] = picture.png
    return shared | own


def _scaled(picture: Image.Image) -> Image.Image:
    factor = (TILE - 2 * PAD) / max(picture.size)
    size = (max(1, round(picture.width * factor)), max(1, round(picture.height * factor)))
    return picture.resize(size, Image.Resampling.NEAREST)
