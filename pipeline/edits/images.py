"""Pictures from files of any kind to plain arrays of a given size.

Whatever a file holds (grey, palette, alpha, CMYK, 16 bits, turned by EXIF) becomes 8-bit RGB: alpha
is laid over white, a turn is carried out. The size is reached by one rule: scale until the picture
covers it, then cut away what stands over, the same on both sides. A file that cannot be read raises
`ImageError` with its name, so that readers of many can count it and go on.
"""

import contextlib
import functools
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

Picture = NDArray[np.uint8]
"""[H, W, 3]."""
Region = NDArray[np.bool_]
"""[H, W]."""
Size = tuple[int, int]
"""Height and width."""
LONGEST = 4
"""Longer than wide by, or wider than long, where a picture's own shape is kept."""
MOST_SHAPE = 1.1
"""By which height / width of two pictures of one edit may differ."""

WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
DEEP_GREYS = ("I", "I;16", "I;16L", "I;16B")


class ImageError(ValueError):
    """A picture that cannot be used; the message names it."""


@dataclass(frozen=True)
class ImageFile:
    """A file's picture, upright and in RGB, of whatever size it is."""

    image: Image.Image
    name: str
    """Said in errors."""
    is_clear: bool = False
    """Does white show through somewhere?"""

    @classmethod
    def read(cls, data: bytes, name: str) -> "ImageFile":
        with _named(name):
            image = Image.open(io.BytesIO(data))
            image.load()
            return cls(_to_rgb(ImageOps.exif_transpose(image), name), name, _is_clear(image))

    @property
    def size(self) -> Size:
        return self.image.height, self.image.width

    def fit(self, size: Size) -> Picture:
        """Brought to a size."""
        return _fit(self.image, size, Image.Resampling.LANCZOS)

    def check_shape(self, of: "ImageFile") -> None:
        """Raise ImageError where another picture has another shape: cut alike, they would not show
        the same."""
        here, there = (height / width for height, width in (self.size, of.size))
        if max(here / there, there / here) > MOST_SHAPE:
            raise ImageError(
                f"{self.name} is {_words(self)}, {of.name} {_words(of)} (width × height); the "
                "pictures of an edit must have one shape"
            )

    def region(self, of: "ImageFile", size: Size) -> Region:
        """The region that this mask marks, where it is lighter than half, brought to a size.

        Args:
            of: The picture it belongs to, which must be as large.
            size: Height and width.
        """
        if self.size != of.size:
            raise ImageError(
                f"mask {self.name} is {_words(self)}, its picture {of.name} {_words(of)} (width × "
                "height); a mask must be as large as its picture"
            )
        if self.is_clear:
            raise ImageError(f"mask {self.name} is transparent; save it as white on black")
        levels = np.asarray(self.image).mean(-1)
        darkest, lightest = levels.min(), levels.max()
        if darkest < lightest <= 127.5:
            raise ImageError(
                f"mask {self.name} has levels of {darkest:g} to {lightest:g}; save it as 255 where "
                "the edit belongs and 0 elsewhere"
            )
        return _fit(self.image, size, Image.Resampling.NEAREST).mean(-1) > 127.5


def read_picture(data: bytes, name: str, size: Size) -> Picture:
    """A file's picture as RGB, brought to a size; its name is said in errors."""
    return ImageFile.read(data, name).fit(size)


@functools.lru_cache(maxsize=4)
def sizes_of_area(area: int, step: int) -> tuple[Size, ...]:
    """Heights and widths in steps of so many pixels, at most `area` pixels in all, of each height
    the widest; none is more than `LONGEST` times as long as wide."""
    sides = range(step, math.isqrt(area * LONGEST) + 1, step)
    found = ((height, area // height // step * step) for height in sides)
    return tuple(x for x in found if min(x) and max(x) <= LONGEST * min(x))


def nearest_size(size: Size, sizes: Sequence[Size]) -> Size:
    """The one that keeps most of a picture of some size."""
    ratio = math.log(size[0] / size[1])
    return min(sizes, key=lambda x: (abs(math.log(x[0] / x[1]) - ratio), -x[0] * x[1]))


def to_png(picture: Picture, colours: int | None = None) -> bytes:
    """A picture as the bytes of a PNG file, with a palette of so many colours if that is said."""
    image, out = Image.fromarray(picture), io.BytesIO()
    (image.quantize(colours) if colours else image).save(out, "png", optimize=True)
    return out.getvalue()


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


def _is_clear(image: Image.Image) -> bool:
    if image.mode not in WITH_ALPHA and "transparency" not in image.info:
        return False
    return bool((np.asarray(image.convert("RGBA"))[..., 3] < 255).any())


def _fit(image: Image.Image, size: Size, resampling: Image.Resampling) -> Picture:
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
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # damaged files make Pillow raise all kinds
        raise ImageError(f"{name} is damaged: {error}") from error


def _words(file: ImageFile) -> str:
    return f"{file.image.width} × {file.image.height}"
