"""Pictures from files of any kind to plain arrays of one size.

Whatever a file holds (grey, palette, alpha, CMYK, 16 bits, turned by EXIF) becomes 8-bit RGB: alpha
is laid over white, a turn is carried out. The size is reached by one rule: scale until the picture
covers it, then cut away what stands over, the same on both sides. A file that cannot be read raises
`ImageError` with its name, so that readers of many can count it and go on.
"""

import contextlib
import io
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

Picture = NDArray[np.uint8]
"""[H, W, 3]."""
Region = NDArray[np.bool_]
"""[H, W]."""

WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
DEEP_GREYS = ("I", "I;16", "I;16L", "I;16B")


class ImageError(ValueError):
    """A picture that cannot be used; the message names it."""


def read_picture(data: bytes, name: str, size: tuple[int, int]) -> Picture:
    """A file's picture as RGB, brought to a size.

    Args:
        data: The file's bytes.
        name: Said in errors.
        size: Height and width.
    """
    return _fit(_open(data, name), size, Image.Resampling.LANCZOS)


def read_region(data: bytes, name: str, size: tuple[int, int], of: bytes, of_name: str) -> Region:
    """A mask file as the region it marks: where it is lighter than half.

    Args:
        data: The mask file's bytes.
        name: Said in errors.
        size: Height and width to bring it to.
        of: The bytes of the picture it belongs to, which must be as large.
        of_name: Said in errors.
    """
    mask, picture = _open(data, name), _open(of, of_name)
    if mask.size != picture.size:
        raise ImageError(
            f"mask {name} is {_size(mask)}, its picture {of_name} {_size(picture)} (width × "
            "height); a mask must be as large as its picture"
        )
    return _fit(mask, size, Image.Resampling.NEAREST).mean(-1) > 127.5


def to_png(picture: Picture) -> bytes:
    """A picture as the bytes of a PNG file."""
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "png", optimize=True)
    return out.getvalue()


def _open(data: bytes, name: str) -> Image.Image:
    """The picture upright and in RGB."""
    with _named(name):
        image = Image.open(io.BytesIO(data))
        image.load()
        return _to_rgb(ImageOps.exif_transpose(image), name)


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode in DEEP_GREYS:  # Pillow would clip at 255 instead of scaling
        deep = np.asarray(image).astype(np.float64) / 257
        return Image.fromarray(deep.clip(0, 255).round().astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ImageError(f"{name} holds floating-point pixels; save it with 8 or 16 bits")
    if image.mode in WITH_ALPHA or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _fit(image: Image.Image, size: tuple[int, int], resampling: Image.Resampling) -> Picture:
    height, width = size
    if (image.height, image.width) != size:
        image = ImageOps.fit(image, (width, height), resampling)
    return np.array(image)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """What Pillow raises for damaged, foreign and monstrous files, in one line."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")  # of odd but readable metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UnidentifiedImageError as error:
        raise ImageError(f"{name} is not a picture that Pillow can read") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ImageError(f"{name} is too large: {error}") from error
    except ImageError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise ImageError(f"{name} is damaged: {error}") from error


def _size(image: Image.Image) -> str:
    return f"{image.width} × {image.height}"
