"""Is what was sent a picture of a reasonable size? Decided by its header, before any pixel.

A few kilobytes can hold a picture that takes gigabytes once it is decoded.
"""

import base64
import binascii
import io
import warnings

from PIL import Image, UnidentifiedImageError

MAX_SIDE = 2048
"""Limit on the pixels per side."""
FORMATS = ("PNG", "JPEG")


def read_file(text: str) -> bytes:
    """The bytes of a picture file in base64. Raises ValueError unless it may be decoded."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("picture must be a PNG or JPEG file in base64") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are checked below
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height = image.size
    except Image.DecompressionBombError:
        raise ValueError(
            f"picture has more pixels than the limit of {MAX_SIDE} × {MAX_SIDE}; send a smaller one"
        ) from None
    except UnidentifiedImageError:
        raise ValueError("picture is neither a PNG nor a JPEG file") from None
    except Exception as error:  # damaged files make Pillow raise errors of many types
        raise ValueError(f"picture cannot be read: {error}") from error
    if max(width, height) > MAX_SIDE:
        raise ValueError(
            f"picture has {width} × {height} pixels, more than the limit of {MAX_SIDE} × "
            f"{MAX_SIDE}; send a smaller one"
        )
    return data
