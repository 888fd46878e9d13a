"""Pictures of every kind, made here, read to plain arrays."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from remask.pipeline.edits.images import (
    MAX_ASPECT,
    ImageError,
    ImageFile,
    nearest_size,
    read_picture,
    sizes_of_area,
    to_png,
)

RED, BLUE = (200, 30, 40), (20, 60, 220)


def saved(image, kind="png", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def two_halves(size=(8, 8), mode="RGB"):
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, size[0], size[1]))
    return image.convert(mode)


def read(data, size=(8, 8)):
    return read_picture(data, "a.png", size)


def test_rgb_comes_back_as_it_was():
    expected = np.array(two_halves())
    assert np.array_equal(read(saved(two_halves())), expected)
    assert np.array_equal(read(to_png(expected)), expected)


def test_grey_and_black_and_white_become_three_equal_channels():
    grey = read(saved(Image.new("L", (8, 8), 77)))
    assert grey.shape == (8, 8, 3)
    assert (grey == 77).all()
    assert (read(saved(Image.new("1", (8, 8), 1))) == 255).all()


def test_sixteen_bits_are_scaled_not_clipped():
    deep = Image.fromarray(np.full((8, 8), 0x8080, np.uint16))
    assert (read(saved(deep)) == 0x80).all()


def test_palettes_are_looked_up():
    indexed = two_halves().quantize(2)
    assert indexed.mode == "P"
    assert np.array_equal(read(saved(indexed)), np.array(two_halves()))


def test_transparency_lies_over_white():
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.paste((255, 0, 0, 128), (4, 0, 8, 8))
    picture = read(saved(image))
    assert (picture[:, :4] == 255).all()
    assert np.abs(picture[:, 4:].astype(int) - (255, 127, 127)).max() <= 1
    faint = read(saved(Image.new("LA", (8, 8), (0, 0))))
    assert (faint == 255).all()
    indexed = two_halves().quantize(2)
    red = min(range(2), key=lambda i: abs(indexed.getpalette()[3 * i] - RED[0]))
    shown = read(saved(indexed, transparency=red))
    assert (shown[:, :4] == 255).all()
    assert (shown[:, 4:] == BLUE).all()


def test_cmyk_has_the_colours_of_rgb():
    picture = read(saved(two_halves((32, 32), "CMYK"), "jpeg", quality=100), (32, 32))
    expected = np.array(two_halves((32, 32))).astype(int)
    assert np.abs(picture.astype(int) - expected)[:, [0, 1, 30, 31]].max() < 12


def test_a_turn_in_exif_is_carried_out():
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side: to be turned a quarter clockwise
    picture = read(saved(two_halves((8, 16)), exif=exif), (8, 16))
    assert (picture[:4] == RED).all()
    assert (picture[4:] == BLUE).all()


def test_other_sizes_are_scaled_to_cover_and_cut_at_both_sides():
    image = Image.new("RGB", (48, 16), "white")  # three squares side by side
    image.paste(RED, (16, 0, 32, 16))
    picture = read(saved(image), (8, 8))
    assert (picture[:, 3:-3] == RED).all(), "the middle square is what remains"
    assert read(saved(two_halves((4, 4))), (8, 12)).shape == (8, 12, 3)


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
def test_truncated_files_are_named(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    data = saved(Image.fromarray(noise), kind)
    with pytest.raises(ImageError, match=r"a\.png is (damaged|not a picture)"):
        read(data[: len(data) // 2])


def test_what_is_no_picture_is_named():
    with pytest.raises(ImageError, match="a.png is not a picture that Pillow can read"):
        read(b"hello")
    with pytest.raises(ImageError, match="a.png is not a picture"):
        read(b"")
    with pytest.raises(ImageError, match="a.png holds floating-point pixels; save it with 8"):
        read(saved(Image.new("F", (8, 8)), "tiff"))


@pytest.mark.parametrize("side", [12_000, 60_000])
def test_a_monster_is_refused_before_it_is_unpacked(side):
    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(ImageError, match="a.png is too large"):
        read(data)


@pytest.mark.parametrize("exif", [b"II*\0", b"MM\0*\0\0", b"II+\0\x08\0\0\0"])
def test_a_broken_exif_block_is_no_traceback(exif):
    with pytest.raises(ImageError, match=r"a\.png is damaged"):
        read(saved(two_halves(), exif=b"Exif\0\0" + exif))


def test_a_mask_marks_where_it_is_light():
    mask = Image.new("L", (16, 16), 0)
    mask.paste(255, (8, 0, 16, 16))
    picture = ImageFile.read(saved(two_halves((16, 16))), "a.png")
    region = ImageFile.read(saved(mask), "m.png").region(picture, (8, 8))
    assert region.dtype == bool
    assert not region[:, :4].any()
    assert region[:, 4:].all()


def test_a_mask_of_another_size_is_refused():
    mask = ImageFile.read(saved(Image.new("L", (16, 8))), "m.png")
    picture = ImageFile.read(saved(two_halves((16, 16))), "a.png")
    with pytest.raises(
        ImageError, match=r"mask m\.png is 16 × 8, its picture a\.png 16 × 16 .*as large as"
    ):
        mask.region(picture, (8, 8))


def test_a_mask_that_says_nothing_is_refused():
    picture = ImageFile.read(saved(two_halves((16, 16))), "a.png")
    faint = Image.new("L", (16, 16), 0)
    faint.paste(1, (8, 0, 16, 16))
    with pytest.raises(ImageError, match="mask m.png has levels of 0 to 1; save it as 255 where"):
        ImageFile.read(saved(faint), "m.png").region(picture, (8, 8))
    clear = Image.new("RGBA", (16, 16), (255, 255, 255, 0))
    clear.paste((255, 255, 255, 255), (8, 0, 16, 16))
    with pytest.raises(ImageError, match="mask m.png is transparent; save it as white on black"):
        ImageFile.read(saved(clear), "m.png").region(picture, (8, 8))
    black = ImageFile.read(saved(Image.new("LA", (16, 16), (0, 255))), "m.png")
    assert not black.region(picture, (8, 8)).any(), "a mask of nothing is one"


@given(
    st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 1200), st.sampled_from([1, 8, 32])
)
def test_a_pictures_own_shape_keeps_most_of_it(height, width, side, step):
    sizes = sizes_of_area(side**2, step)
    assert bool(sizes) == (step <= side)
    if not sizes:
        return

    def kept(size):
        """The share of a picture that is left once it covers a size and is cut to it."""
        scale = max(size[0] / height, size[1] / width)
        return size[0] * size[1] / (height * scale * width * scale)

    for size in sizes:
        assert not size[0] % step
        assert not size[1] % step
        assert size[0] * size[1] <= side**2 < size[0] * (size[1] + step)
        assert max(size) <= MAX_ASPECT * min(size)
    chosen = nearest_size((height, width), sizes)
    assert kept(chosen) == pytest.approx(max(map(kept, sizes)))


def test_sizes_at_half_a_megapixel_are_about_as_large():
    sizes = sizes_of_area(512**2, 32)
    assert {(512, 512), (256, 1024), (1024, 256)} <= {*sizes}
    assert nearest_size((1080, 1920), sizes) == (384, 672)
    assert nearest_size((100, 9000), sizes) == (256, 1024)
    assert all(h * w > 0.9 * 512**2 for h, w in sizes)
