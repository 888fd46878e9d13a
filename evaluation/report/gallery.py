"""Image edits in the report: what each method made of the same samples, in small PNG files."""

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from remask.evaluation.report.results import Evaluation
from remask.pipeline.edits import EditPair
from remask.pipeline.edits.images import ImageFile, Picture, to_png

Bools = NDArray[np.bool_]

MOST_PIXELS, COLOURS = 192, 128
"""Per side; larger pictures are scaled down, to a palette: photographs are many bytes."""
GREY = 170
"""Level of a masked cell."""
STRIPE = 3
"""Pixels of a stripe over a cell that was re-masked."""
TILE, LINE, PAD = 160, 24, 4
"""Of the sheet, in pixels: a picture with its margins, a line of text, a margin."""


def draw_edit(
    pair: EditPair, *, steps: list[Picture], is_masked: Bools, remasked: Bools, source: Picture
) -> dict[str, Any]:
    """What the report shows of a sample.

    Args:
        pair: The edit.
        steps: The picture of every state that is shown, the last among them.
        is_masked: Which cells of each are MASK, [states, h, w].
        remasked: Cells that were re-masked at some step, [h, w].
        source: The source picture as the tokeniser gives it back.
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


def to_text(picture: Picture) -> str:
    """A PNG file in base64, of at most MOST_PIXELS per side."""
    most, colours = max(picture.shape[:2]), None
    if most > MOST_PIXELS:
        height, width = (max(1, x * MOST_PIXELS // most) for x in picture.shape[:2])
        small = Image.fromarray(picture).resize((width, height), Image.Resampling.BOX)
        picture, colours = np.asarray(small), COLOURS
    return base64.b64encode(to_png(picture, colours)).decode()


def heat(edit: Picture, source: Picture) -> Picture:
    """How far each pixel is from the source's: white where it is equal, then red, then black."""
    off = np.abs(edit.astype(np.float64) - source).max(-1) / 255
    channels = (1 - np.maximum(0, 2 * off - 1), 1 - 2 * off, 1 - 2 * off)
    return (255 * np.stack(channels, -1).clip(0, 1)).round().astype(np.uint8)


def with_stripes(picture: Picture, cells: Bools) -> Picture:
    """The picture faint, with dark stripes over some cells; a small one enlarged for them."""
    times = max(1, MOST_PIXELS // max(picture.shape[:2]))
    picture = picture.repeat(times, 0).repeat(times, 1)
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


def draw_sheet(evaluation: Evaluation) -> Picture:
    """One picture of the samples: source and target, then what each run made of it.

    Raises:
        ValueError: No sample has pictures.
    """
    samples = _samples(evaluation)
    if not samples:
        raise ValueError(f"{evaluation.uri} has no edited pictures to show")
    rows = []
    for runs in samples.values():
        first = runs[0][1]
        shown = {(name, ""): first["pictures"][name] for name in ("source", "target")}
        for name, sample in runs:
            label = name.partition(", ")[2]  # without the suite, which they share
            shown[label, ""] = sample["pictures"]["edit"]
            if not any(0 in state for state in sample["states"][:1]):
                shown[label, "its re-masked cells"] = sample["pictures"]["mask"]
        rows.append((first["instruction"], shown))
    columns = list(dict.fromkeys(key for _, shown in rows for key in shown))
    width = TILE * len(columns)
    sheet = Image.new("RGB", (width, (TILE + LINE) * len(rows) + LINE), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=LINE * 0.6)
    for column, (label, part) in enumerate(columns):
        pen.text((column * TILE + PAD, PAD), part or label, "black", font)
    for row, (instruction, shown) in enumerate(rows):
        top = LINE + row * (TILE + LINE)
        pen.text((PAD, top + PAD), instruction, "black", font)
        for key, picture in shown.items():
            drawn = ImageFile.read(base64.b64decode(picture), f"{evaluation.uri}: {key[0]}").image
            times = (TILE - 2 * PAD) / max(drawn.size)
            size = (max(1, round(drawn.width * times)), max(1, round(drawn.height * times)))
            drawn = drawn.resize(size, Image.Resampling.NEAREST)
            sheet.paste(drawn, (columns.index(key) * TILE + PAD, top + LINE))
    return np.asarray(sheet)


def _samples(evaluation: Evaluation) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """The samples with pictures, by id, each with the runs that show it and their names."""
    samples: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for entry in evaluation.showcase:
        for sample in entry["samples"]:
            if "pictures" in sample:
                samples.setdefault(sample["id"], []).append((run_name(entry), sample))
    return samples


def draw_gallery(evaluation: Evaluation) -> str:
    """A section with a table for every sample, a row for every run that shows it; or nothing."""
    samples = _samples(evaluation)
    if not samples:
        return ""
    shown = "".join(_article(runs) for runs in samples.values())
    return (
        '<section id="gallery"><h2>Edits side by side</h2><p class="note">Re-masked cells are '
        "striped. The difference is to the source as the tokeniser gives it back: white where "
        "nothing changed, red and then black the more a pixel did.</p>"
        f"{shown}</section>"
    )


def run_name(entry: Mapping[str, Any]) -> str:
    """A run of the showcase in words."""
    return ", ".join(str(entry[key]) for key in ("suite", "checkpoint", "decoder"))


def _article(runs: list[tuple[str, Mapping[str, Any]]]) -> str:
    sample = runs[0][1]
    columns = ("source", "edit", "mask", "difference", "target")
    titles = ("source", "edit", "re-masked", "difference", "target")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(_cell(run, c) for c in columns)}</tr>'
        for name, run in runs
    )
    said = escape(sample["instruction"])
    return (
        f'<article class="edit"><h3>{said} <small>{escape(sample["id"])}</small></h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{said}">'
        f'<table class="edits"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div></article>"
    )


def _cell(run: Mapping[str, Any], name: str) -> str:
    told = {
        "source": "the source",
        "target": "the target",
        "edit": f"the edit: {run['note']}",
        "mask": "the source with the re-masked cells striped",
        "difference": "how far the edit is from the source",
    }
    text = escape(told[name])
    return f'<td><img src="data:image/png;base64,{run["pictures"][name]}" alt="{text}"></td>'
