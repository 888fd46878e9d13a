"""Pictures of every kind that people have, damaged, and masks of their regions."""

import functools
import io
from random import Random

import numpy as np
from PIL import Image

from remask.pipeline.edits.images import ImageFile
from tests.fuzz.case import Case, Target
from tests.fuzz.mutate import mutate_bytes

FORMATS = (
    *(("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "P"), ("PNG", "I;16"), ("PNG", "1"), ("PNG", "LA")),
    *(("JPEG", "RGB"), ("JPEG", "CMYK"), ("JPEG", "L"), ("GIF", "P"), ("BMP", "RGB"), ("BMP", "P")),
    *(("TIFF", "RGB"), ("TIFF", "I;16"), ("TIFF", "F"), ("TIFF", "CMYK"), ("WEBP", "RGB")),
    *(("WEBP", "RGBA"), ("PPM", "RGB"), ("TGA", "RGBA"), ("ICO", "RGBA"), ("PCX", "L")),
    *(("JPEG2000", "RGB"), ("SGI", "RGB"), ("DDS", "RGBA"), ("ICNS", "RGBA"), ("IM", "RGB")),
)


@functools.cache
def picture(kind: str, mode: str, seed: int) -> bytes:
    """A small picture in a format and a mode."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 1 + seed % 8  # orientation
    image = Image.fromarray(pixels)
    if mode in ("I;16", "F"):
        image = Image.fromarray(pixels[..., 0].astype(np.uint16 if mode == "I;16" else np.float32))
    else:
        image = image.convert(mode)
    if kind in ("PNG", "JPEG", "WEBP", "TIFF"):
        image.save(out, kind, exif=exif)
    else:
        image.save(out, kind)
    return out.getvalue()


def make(rng: Random) -> Case:
    kind, mode = rng.choice(FORMATS)
    data, notes = mutate_bytes(picture(kind, mode, rng.randrange(8)), rng, most=4)
    mask = picture("PNG", "1", 0)
    if rng.random() < 0.3:
        mask, more = mutate_bytes(mask, rng)
        notes += more
    files = {"picture.bin": data, "mask.bin": mask}
    return Case(files, notes=(f"{kind} {mode}", *notes), names=("picture.bin", "mask.bin"))


def run(case: Case) -> None:
    image = ImageFile.read(case.files["picture.bin"], "picture.bin")
    image.fit((16, 16))
    mask = ImageFile.read(case.files["mask.bin"], "mask.bin")
    image.check_shape(mask)
    mask.region(image, (16, 16))


TARGETS = (Target("pictures", make, run, share=3.0),)
