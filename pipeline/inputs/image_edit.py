"""Image edits as inputs: a picture and an instruction.

A picture is scaled and cropped to the size that the model was trained on, tokenised by the image
tokeniser beside the model, and written as a row with the instruction. The words of a model with an
id per word are in inputs.json, so that its data are not needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor

from remask.models import Backbone
from remask.models.checkpoints.input_files import IMAGES
from remask.models.config import from_mapping
from remask.models.images.edit_rows import SourceIn
from remask.models.ranges import Range, check_fields
from remask.pipeline.edits.images import ImageFile, Picture, Size, nearest_size, sizes_of_area
from remask.pipeline.edits.text import PublishedText, WordText
from remask.pipeline.inputs.reader import MASK_CELL, Start, check_request
from remask.pipeline.sources.image_edit import ImageEditSource

GREY = 170
"""Grey level of a masked cell."""
TEXTS: dict[str, type[WordText] | type[PublishedText]] = {
    "words": WordText,
    "published": PublishedText,
}


@dataclass(frozen=True, kw_only=True)
class PictureSize:
    """The size that pictures are scaled and cropped to."""

    height: Annotated[int, Range("[1, 2^14]")]
    width: Annotated[int, Range("[1, 2^14]")]
    step: Annotated[int | None, Range("[1, 2^14]")] = None
    """Keep a picture's own shape: any height and width that are multiples of this many pixels and
    have no larger area. Defaults to `height` and `width` for every picture."""

    def __post_init__(self) -> None:
        check_fields(self, "size.")
        if self.step is not None and not self._shapes:
            raise ValueError(
                f"size: no picture of at most {self.height} × {self.width} pixels has sides in "
                f"steps of {self.step}"
            )

    def fit(self, size: Size) -> Size:
        """Height and width for a picture of a size."""
        if self.step is None:
            return self.height, self.width
        return nearest_size(size, self._shapes)

    @property
    def _shapes(self) -> tuple[Size, ...]:
        return sizes_of_area(self.height * self.width, self.step or 1)


@dataclass(frozen=True, kw_only=True)
class EditInputs:
    """How pictures and instructions become rows; most keys are those of an image-edit source."""

    kind: Literal["image_edit"] = "image_edit"
    size: PictureSize
    text: dict[str, Any] = field(default_factory=dict)
    """The source's section `text`, without the place of a tokenizer."""
    words: tuple[str, ...] = ()
    """The vocabulary of a model with an id per word, in the order of the ids."""
    source_in: SourceIn = "canvas"

    def __post_init__(self) -> None:
        check_fields(self)
        self._text("")  # checks the keys

    def source(self, folder: str) -> ImageEditSource:
        """A source that writes the rows of training from any picture and instruction."""
        return ImageEditSource(
            pairs=NoPairs(self.size, self.words),  # pyright: ignore[reportArgumentType]
            tokenizer=str(Path(folder, IMAGES).absolute()),
            text=self._text(str(Path(folder).absolute())),
            source_in=self.source_in,
        )

    def reader(self, folder: str, backbone: Backbone) -> "EditReader":
        source = self.source(folder)
        try:
            source.check_model(backbone)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        return EditReader(source, backbone)

    def _text(self, folder: str) -> WordText | PublishedText:
        values = {"kind": "words"} | self.text
        if values["kind"] not in list(TEXTS):
            raise ValueError(f"text: kind must be one of {list(TEXTS)}, got {values['kind']!r}")
        place = {} if values["kind"] == "words" else {"tokenizer": folder}
        return from_mapping(TEXTS[values["kind"]], values | place, "text")


@dataclass(frozen=True)
class NoPairs:
    """Stands where a source has its pairs, for a model whose data are elsewhere."""

    picture_size: PictureSize
    vocabulary: tuple[str, ...]

    @property
    def size(self) -> Size | None:
        size = self.picture_size
        return (size.height, size.width) if size.step is None else None

    def size_for(self, size: Size) -> Size:
        return self.picture_size.fit(size)

    def num_pairs(self) -> dict[str, int]:
        return {}

    def pair(self, split: str, number: int) -> NoReturn:
        raise ValueError("a model's inputs.json has no pairs; build them with `remask build`")

    def words(self) -> tuple[str, ...]:
        return self.vocabulary

    def data_hash(self) -> None:
        """None: there are no data."""

    def with_absolute_paths(self) -> "NoPairs":
        return self


class EditReader:
    """Reads pictures and instructions for one model."""

    kind: Literal["image_edit"] = "image_edit"

    def __init__(self, source: ImageEditSource, backbone: Backbone) -> None:
        self.source, self._mask_id = source, backbone.mask_id
        self._limit = backbone.max_length
        self._image = source.layout.image

    def start(self, request: Mapping[str, Any]) -> Start:
        check_request(request, {"picture": bytes, "instruction": str}, ["picture", "instruction"])
        file = ImageFile.read(request["picture"], "the picture")
        return self.start_edit(file, request["instruction"])

    def start_edit(self, file: ImageFile, instruction: str) -> Start:
        """The start of an edit of a picture that has been read."""
        size = self.source.pairs.size_for(file.size)
        rows, columns = (side // self.source.patch for side in size)
        self._check_length(instruction, rows, columns)
        (codes,) = self.source.encode([file.fit(size)])  # [h, w]
        row = self.source.row(instruction, codes, codes)
        tokens, is_blank = row.wrong, self.source.source_in == "prompt"
        if is_blank:
            tokens = tokens.masked_fill(row.editable, self._mask_id)
        unknown = self.source.unknown_words(instruction)
        notes = (f"the model has no token for {', '.join(unknown)}",) if unknown else ()
        return Start(
            tokens=tokens,
            editable=row.editable,
            shown=row.editable.nonzero()[:, 0],
            is_blank=is_blank,
            prompt=instruction,
            columns=columns,
            notes=notes,
        )

    def cells(self, ids: Sequence[int]) -> list[str]:
        return [MASK_CELL if x == self._mask_id else str(x - self._image.code_offset) for x in ids]

    def result(self, start: Start, tokens: Tensor) -> str:
        return ""

    def pictures(self, start: Start, states: Tensor) -> list[Picture]:
        grids = states[:, start.shown].view(len(states), -1, start.columns or 1)  # [K, h, w]
        is_masked = grids == self._mask_id
        # A masked cell is drawn in grey; the tokeniser gets the code that it last had there.
        codes = (grids.long() - self._image.code_offset).masked_fill(is_masked, 0)
        for k in range(1, len(codes)):
            codes[k] = torch.where(is_masked[k], codes[k - 1], codes[k])
        pictures = self.source.decode(list(codes))
        return [
            with_grey(picture, masked.numpy(), self.source.patch)
            for picture, masked in zip(pictures, is_masked, strict=True)
        ]

    def _check_length(self, instruction: str, rows: int, columns: int) -> None:
        """Raise ValueError if the row is longer than the model, before the picture is encoded."""
        cells = rows * (columns + 1)
        if self._limit is not None and cells > self._limit:
            raise ValueError(
                f"a picture of {rows} × {columns} cells is longer than the model's {self._limit} "
                "tokens"
            )
        blank = torch.zeros((rows, columns), dtype=torch.long)
        length = len(self.source.row(instruction, blank, blank).target)
        if self._limit is not None and length > self._limit:
            raise ValueError(
                f"a row of {length} tokens is longer than the model's {self._limit}; use fewer "
                "words"
            )


def with_grey(picture: Picture, cells: np.ndarray, patch: int) -> Picture:
    """The picture with some of its cells filled in grey; `cells` is bool [h, w]."""
    pixels = cells.repeat(patch, 0).repeat(patch, 1)
    return np.where(pixels[..., None], GREY, picture).astype(np.uint8)
