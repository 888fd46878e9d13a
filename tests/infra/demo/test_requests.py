"""Requests, their schema, and pictures that are refused by their header."""

import base64
import io
import struct
import zlib

import jsonschema
import pytest
from PIL import Image
from PIL.ImageFile import ImageFile

from remask.infra.demo.picture import MAX_SIDE, read_file
from remask.infra.demo.requests import KINDS, DecodeOptions, read_request
from remask.infra.demo.schema import schema_of

SUDOKU = {"kind": "sudoku", "board": "1" * 81}
TEXT = {"kind": "text", "prompt": "abc"}
PICTURE = {"kind": "image_edit", "picture": "aa==", "instruction": "remove it"}


@pytest.mark.parametrize(
    "request_",
    [
        SUDOKU,
        SUDOKU | {"editable": None},
        SUDOKU | {"editable": "1" * 81, "checkpoint": "sudoku"},
        SUDOKU | {"options": {"history": False, "margin": -1, "pace": 1, "max_steps": 256}},
        SUDOKU | {"options": {"policy": "p2", "seed": 2**40}},
        SUDOKU | {"options": {"pace": 0}},
        SUDOKU | {"options": {"pace": 1.01}},
        SUDOKU | {"options": {"max_steps": 257}},
        SUDOKU | {"options": {"max_steps": True}},
        SUDOKU | {"options": {"policy": "guess"}},
        SUDOKU | {"options": {"seed": -1}},
        SUDOKU | {"options": {"steps": 3}},
        SUDOKU | {"options": None},
        SUDOKU | {"board": 7},
        SUDOKU | {"board": "1" * 82},
        SUDOKU | {"kind": "text"},
        {"kind": "sudoku"},
        TEXT,
        TEXT | {"draft": "abc", "length": 4096},
        TEXT | {"length": 4097},
        TEXT | {"prompt": ["abc"]},
        TEXT | {"draft": "a" * 20_001},
        PICTURE,
        PICTURE | {"instruction": "a" * 2_001},
    ],
)
def test_what_fits_the_schema_is_what_is_read(request_):
    validator = jsonschema.Draft202012Validator(schema_of(KINDS[request_["kind"]]))
    try:
        read_request(request_)
        is_read = True
    except ValueError:
        is_read = False
    assert validator.is_valid(request_) == is_read


def test_a_schema_has_the_descriptions_and_defaults_of_the_fields():
    properties = schema_of(DecodeOptions)["properties"]
    assert all(properties[name].get("description") for name in ("history", "margin", "max_steps"))
    assert properties["history"]["default"] is True
    assert properties["margin"]["type"] == ["number", "null"]
    assert properties["policy"]["enum"][0] == "revision"


def png(width, height):
    """A PNG file of a few bytes that claims any size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(name, data):
        sum_ = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + sum_

    pixels = zlib.compress(bytes(10))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def encoded(data):
    return base64.b64encode(data).decode()


def small(format_):
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, format_)
    return out.getvalue()


@pytest.mark.parametrize("format_", ["PNG", "JPEG"])
def test_a_picture_is_read(format_):
    assert read_file(encoded(small(format_))) == small(format_)


@pytest.mark.parametrize(
    ("width", "height"), [(60_000, 60_000), (MAX_SIDE + 1, 1), (10_000, 10_000), (1, 2**31 - 1)]
)
def test_a_huge_picture_is_refused_before_its_pixels_are_decoded(monkeypatch, width, height):
    loaded = []
    monkeypatch.setattr(ImageFile, "load", lambda self: loaded.append(self))
    with pytest.raises(ValueError, match="than the limit of 2048 × 2048; send a smaller one"):
        read_file(encoded(png(width, height)))
    assert loaded == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither a PNG nor a JPEG"),
        ("not base64!", "in base64"),
        ("é", "in base64"),
        (encoded(b"GIF89a" + bytes(50)), "neither a PNG nor a JPEG"),
        (encoded(small("GIF")), "neither a PNG nor a JPEG"),
        (encoded(b"\x89PNG\r\n\x1a\n" + bytes(8)), "picture"),
        (encoded(png(8, 8)[:20]), "picture"),
    ],
)
def test_what_is_no_picture_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        read_file(text)
