"""Small pictures and folders of them, as people and publishers leave them."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, ImageDraw

from remask.models import PatchVQ, PatchVQConfig, save_tokenizer

COLOURS = {"apple": "red", "pear": "green", "plum": "purple", "whale": "#1155ee", "lemon": "yellow"}
SKINS = {"": "#ffcc33", "-1f3fb": "#f7dece", "-1f3fc": "#f3d2a2", "-1f3fd": "#d5ab88"}
SKINS |= {"-1f3fe": "#af7e57", "-1f3ff": "#7c533e"}


def disc(colour, side=64, background="white"):
    image = Image.new("RGB", (side, side), background)
    ImageDraw.Draw(image).ellipse((6, 6, side - 7, side - 7), fill=colour)
    return image


def png(image):
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()


def write_pngs(folder: Path) -> Path:
    """Named pictures and nothing else."""
    folder.mkdir(parents=True)
    for name, colour in COLOURS.items():
        disc(colour).save(folder / f"{name}.png")
    disc("#888888").save(folder / "stone.png")
    return folder


def write_package(folder: Path) -> Path:
    """As the npm package has them: five objects, and two people with five skin tones each."""
    pictures = folder / "img" / "twitter" / "64"
    pictures.mkdir(parents=True)
    rows = []
    for i, (name, colour) in enumerate(COLOURS.items()):
        disc(colour).save(pictures / f"{i:04x}.png")
        rows.append({"image": f"{i:04x}.png", "short_name": name, "category": "Food & Drink"})
    for name in ("boy", "girl"):
        for suffix, colour in SKINS.items():
            disc(colour, background="white").save(pictures / f"{name}{suffix}.png")
        tones = {s: {"image": f"{name}{s}.png"} for s in SKINS if s}
        rows.append(
            {
                "image": f"{name}.png",
                "short_name": name,
                "category": "People & Body",
                "skin_variations": tones,
            }
        )
    (folder / "emoji.json").write_text(json.dumps(rows))
    return folder


def edit_pictures(number: int, side: int = 16) -> tuple[Image.Image, Image.Image, Image.Image]:
    """A source with two squares, a target with the second one red, and the mask of that."""
    rng = np.random.default_rng(number)
    source = Image.new("RGB", (side, side), tuple(rng.integers(150, 256, 3).tolist()))
    draw, half = ImageDraw.Draw(source), side // 2
    draw.rectangle((0, 0, half - 1, half - 1), fill="black")
    draw.rectangle((half, half, side, side), fill="blue")
    target = source.copy()
    ImageDraw.Draw(target).rectangle((half, half, side, side), fill="red")
    mask = Image.new("L", (side, side), 0)
    ImageDraw.Draw(mask).rectangle((half, half, side, side), fill=255)
    return source, target, mask


def write_plain(folder: Path, sizes: Sequence[tuple[int, int]] = ((16, 16),) * 6) -> Path:
    """`edits.jsonl` beside its pictures, with masks; each of a height and width."""
    folder.mkdir(parents=True)
    lines = []
    for i, (height, width) in enumerate(sizes):
        names = [f"{i}-{kind}.png" for kind in ("source", "target", "mask")]
        for image, name in zip(edit_pictures(i), names, strict=True):
            image.resize((width, height), Image.Resampling.NEAREST).save(folder / name)
        line = dict(zip(("source", "target", "mask"), names, strict=True))
        lines.append(json.dumps(line | {"instruction": f"make square {i} red"}))
    (folder / "edits.jsonl").write_text("\n".join(lines))
    return folder


def write_imgedit(folder: Path, count: int = 4) -> Path:
    """ImgEdit's layout: tables of paths, pictures under Singleturn; one row has two inputs, and
    one table holds dialogues."""
    (folder / "Parquet").mkdir(parents=True)
    rows = []
    for i in range(count):
        name = f"results_adjust_part0/{i:05d}"
        pictures = folder / "Singleturn" / name
        pictures.mkdir(parents=True)
        source, target, _ = edit_pictures(i)
        source.save(pictures / "original.png")
        target.save(pictures / "result.png")
        rows.append(
            {
                "input_images": [f"{name}/original.png"],
                "output_images": [f"{name}/result.png"],
                "prompt": "Make the square red.",
            }
        )
    rows.append(rows[0] | {"input_images": ["a.png", "b.png"]})
    pq.write_table(pa.Table.from_pylist(rows), folder / "Parquet" / "adjust_part0.parquet")
    turns = [{"data": [{"prompt": "Make it red.", "input_images": ["a.png"]}]}]
    pq.write_table(pa.Table.from_pylist(turns), folder / "Parquet" / "content_memory.parquet")
    return folder


def write_tokenizer(folder: Path, pictures: list[np.ndarray], patch: int, num_codes: int) -> str:
    """A real tokeniser without loss on the cells of some pictures: its layers change nothing and
    its entries are those cells."""
    width = 3 * patch**2
    vq = PatchVQ(
        PatchVQConfig(
            patch=patch, num_codes=num_codes, code_width=width, width=width, blocks=0, reach=0
        )
    )
    images = torch.from_numpy(np.stack(pictures)).movedim(-1, 1).float() / 255
    with torch.no_grad():
        for layer in (*vq.encoder, *vq.decoder):
            layer.weight.copy_(torch.eye(width)[..., None, None])
            layer.bias.zero_()
        cells = vq.vectors(images).reshape(-1, width).unique(dim=0)
        assert len(cells) <= num_codes, len(cells)
        vq.codebook[: len(cells)] = cells
    save_tokenizer(vq, folder)
    return str(folder)
