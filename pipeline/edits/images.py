"""Pictures from image files to RGB arrays of a given size.

Every format (grey, palette, alpha, CMYK, 16 bits, rotated by EXIF) becomes 8-bit RGB: alpha is
composited over white and EXIF rotations are applied. A picture is scaled until it covers the wanted
size and then cropped equally on both sides. A file that cannot be read raises `ImageError` with its
name, so that a reader of many files can count it and go on.
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
MAX_ASPECT = 4
"""Limit on the ratio of the longer to the shorter side where a picture keeps its own shape."""
MAX_ASPECT_CHANGE = 1.1
"""Limit on the ratio between the aspect ratios of an edit's two pictures."""

WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")
DEEP_GREYS = ("I", "I;16", "I;16L", "I;16B")


class ImageError(ValueError):
    """A picture that cannot be used; the message names it."""


@dataclass(frozen=True)
class ImageFile:
    """A file's picture, upright and in RGB, in its own size."""

    image: Image.Image
    name: str
    """Name of the file, for errors."""
    is_transparent: bool = False
    """Is any pixel of the file at least partly transparent?"""

    @classmethod
    def read(cls, data: bytes, name: str) -> "ImageFile":
        with _named(name):
            image = Image.open(io.BytesIO(data))
            image.load()
            return cls(_to_rgb(ImageOps.exif_transpose(image), name), name, _is_transparent(image))

    @property
    def size(self) -> Size:
        return self.image.height, self.image.width

    @property
    def dimensions(self) -> str:
        return f"{self.image.width} × {self.image.height}"

    def fit(self, size: Size) -> Picture:
        """The picture scaled and cropped to a size."""
        return _fit(self.image, size, Image.Resampling.LANCZOS)

    def check_shape(self, of: "ImageFile") -> None:
        """Raise ImageError if the aspect ratio differs from another picture's: cropped to one size,
        the two would show different parts of a scene."""
        own, other = (height / width for height, width in (self.size, of.size))
        if max(own / other, other / own) > MAX_ASPECT_CHANGE:
            raise ImageError(
                f"{self.name} is {self.dimensions}, {of.name} {of.dimensions} (width × height); "
                "the pictures of an edit must have one shape"
            )

    def region(self, of: "ImageFile", size: Size) -> Region:
        """The region that this mask marks, scaled and cropped to a size, [H, W].

        Args:
            of: The picture that the mask belongs to, which must have the same size.
            size: Height and width of the region. Pixels lighter than half are inside it.
        """
        if self.size != of.size:
            raise ImageError(
                f"mask {self.name} is {self.dimensions}, its picture {of.name} {of.dimensions} "
                "(width × height); a mask must be as large as its picture"
            )
        if self.is_transparent:
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
    """A file's picture as RGB, scaled and cropped to a size; errors mention its name."""
    return ImageFile.read(data, name).fit(size)


@functools.lru_cache(maxsize=4)
def sizes_of_area(area: int, step: int) -> tuple[Size, ...]:
    """For each height that is a multiple of `step`, the widest size of at most `area` pixels whose
    width is a multiple of `step` too; aspect ratios beyond `MAX_ASPECT` are left out."""
    sides = range(step, math.isqrt(area * MAX_ASPECT) + 1, step)
    sizes = ((height, area // height // step * step) for height in sides)
    return tuple(x for x in sizes if min(x) and max(x) <= MAX_ASPECT * min(x))


def nearest_size(size: Size, sizes: Sequence[Size]) -> Size:
    """The size that keeps most of a picture: the one whose aspect ratio is nearest."""
    ratio = math.log(size[0] / size[1])
    return min(sizes, key=lambda x: (abs(math.log(x[0] / x[1]) - ratio), -x[0] * x[1]))


def to_png(picture: Picture, colours: int | None = None) -> bytes:
    """A picture as a PNG file, with a palette of so many colours; defaults to full colour."""
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


def _is_transparent(image: Image.Image) -> bool:
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
    """Turn Pillow's errors for damaged, unknown and oversized files into a one-line ImageError."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")  # odd but readable metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except UnidentifiedImageError as error:
        raise ImageError(f"{name} is not a picture that Pillow can read") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ImageError(f"{name} is too large: {error}") from error
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # damaged files make Pillow raise errors of many types
        raise ImageError(f"{name} is damaged: {error}") from error
