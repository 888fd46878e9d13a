"""Image edits as token rows: an instruction, and a grid of codes that is to become another.

The pictures of a pair are tokenised here, once and for all builds that share the examples. What a
row should be revised from, the source picture's tokens in the place of the target's, is kept beside
it for the `source` proposal.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from models.edit_rows import EditLayout, EditRow, SourceIn
from models.image_tokenizer import ImageTokenizer
from models.tokenizer_folder import load_tokenizer, tokenizer_fingerprint
from pipeline.edits import EditPair, EmojiPairs, FilePairs, ShapePairs
from pipeline.edits.text import PublishedText, WordText
from pipeline.images import ImageError, Picture
from pipeline.rows import Examples, Vocabulary, pad
from pipeline.storage import absolute

PICTURES_AT_ONCE = 64
"""Encoded in one pass."""


@dataclass(frozen=True, kw_only=True)
class ImageEditSource:
    """Pairs of pictures with instructions; the codes of the canvas are editable."""

    kind: Literal["image_edit"] = "image_edit"
    pairs: ShapePairs | EmojiPairs | FilePairs
    tokenizer: str
    """Folder of the image tokeniser."""
    text: WordText | PublishedText = field(default_factory=WordText)
    source_in: SourceIn = "canvas"
    """Where the source picture lies: in the `canvas`, to be revised into the target, or in the
    `prompt`, for models that fill in an empty canvas."""
    max_length: int = 5120
    """Tokens of a row; pairs with longer instructions are left out."""
    equal: Literal["keep", "skip"] = "keep"
    """Pairs whose two pictures are the same: kept, as an edit of nothing, or left out."""

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")

    def tokenizer_hash(self) -> str:
        return f"{tokenizer_fingerprint(self.tokenizer)}-{self.text.hash(self._words)}"

    def data_hash(self) -> str | None:
        return self.pairs.data_hash()

    def with_absolute_paths(self) -> "ImageEditSource":
        return replace(
            self,
            tokenizer=absolute(self.tokenizer),
            text=self.text.with_absolute_paths(),
            pairs=self.pairs.with_absolute_paths(),
        )

    def vocabulary(self) -> Vocabulary:
        image = self.layout.image
        return Vocabulary(
            image.code_offset + image.num_codes,
            self.text.mask_id,
            tuple(x for x in range(image.code_offset) if x != self.text.mask_id),
        )

    def num_records(self) -> dict[str, int]:
        """Pairs of each split, those that will turn out unreadable included."""
        return {split: count for split, count in self.pairs.num_pairs().items() if count}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Pairs first .. first+count-1 of a split, as far as they can be used; rng is not."""
        found: list[tuple[EditPair, EditRow]] = []
        left_out: list[str] = []
        for pairs in _in_parts(self._usable(split, first, count, left_out)):
            source, target = (self.encode([getattr(p, x) for p in pairs]) for x in SIDES)
            for pair, *codes in zip(pairs, source, target, strict=True):
                row = self.row(pair.instruction, *codes)
                if len(row.target) <= self.max_length:
                    found.append((pair, row))
                else:
                    left_out.append(
                        f"{pair.pair_id}: a row of {len(row.target)} tokens is longer than "
                        f"max_length {self.max_length}"
                    )
        return self._examples(found, left_out)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of codes."""
        height, width = self.pairs.size
        patch = self._tokenizer.patch
        if height % patch or width % patch:
            raise ValueError(
                f"pictures of {height} × {width} pixels do not divide into cells of {patch}; "
                "choose another size"
            )
        return height // patch, width // patch

    @property
    def layout(self) -> EditLayout:
        return self.text.layout(self._tokenizer.num_codes)

    def encode(self, pictures: list[Picture]) -> Tensor:
        """Codes, [B, h, w]."""
        images = torch.from_numpy(np.stack(pictures)).movedim(-1, 1).float() / 255
        return self._tokenizer.encode(images)

    def decode(self, codes: Tensor) -> list[Picture]:
        """Pictures of codes, [B, h, w]."""
        images = (self._tokenizer.decode(codes) * 255).round().to(torch.uint8)
        return list(images.movedim(1, -1).numpy())

    def row(self, instruction: str, source: Tensor, target: Tensor) -> EditRow:
        """An edit's tokens; `source` and `target` are codes, [h, w]."""
        prompt = self.text.prompt(instruction, self._words)
        return self.layout.row(prompt, source, target, self.source_in)

    def row_length(self, instruction: str) -> int:
        """Tokens of an edit's row; pictures all have as many."""
        blank = torch.zeros(self.grid, dtype=torch.long)
        return len(self.row(instruction, blank, blank).target)

    @property
    def _words(self) -> tuple[str, ...]:
        return _words(self.pairs) if isinstance(self.text, WordText) else ()

    @property
    def _tokenizer(self) -> ImageTokenizer:
        return _load_tokenizer(self.tokenizer)

    def _usable(
        self, split: str, first: int, count: int, left_out: list[str]
    ) -> Iterator[EditPair]:
        """The pairs that can be read; the others are named in `left_out`."""
        for number in range(first, first + count):
            try:
                pair = self.pairs.pair(split, number)
            except ImageError as error:
                left_out.append(str(error))
                continue
            if self.equal == "skip" and pair.is_equal:
                left_out.append(f"{pair.pair_id}: source and target are the same picture")
                continue
            yield pair

    def _examples(self, found: list[tuple[EditPair, EditRow]], left_out: list[str]) -> Examples:
        vocabulary = self.vocabulary()
        rows = [row for _, row in found]
        target, lengths = pad([row.target.numpy() for row in rows], vocabulary.dtype)
        starts, _ = pad([row.wrong.numpy() for row in rows], vocabulary.dtype)
        editable, _ = pad([row.editable.numpy() for row in rows], np.dtype(np.bool_))
        return Examples(
            example_ids=[pair.pair_id for pair, _ in found],
            target=target,
            editable=editable,
            lengths=lengths,
            prompt_lengths=np.array([row.prompt_length for row in rows], np.int32),
            vocabulary=vocabulary,
            num_skipped=len(left_out),
            starts=starts if self.source_in == "canvas" else None,
            left_out=left_out,
        )


SIDES = ("source", "target")


def _in_parts(pairs: Iterator[EditPair]) -> Iterator[list[EditPair]]:
    part: list[EditPair] = []
    for pair in pairs:
        part.append(pair)
        if len(part) == PICTURES_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


@functools.lru_cache(maxsize=2)
def _load_tokenizer(folder: str) -> ImageTokenizer:
    return load_tokenizer(folder, device="cuda" if torch.cuda.is_available() else "cpu")


_words = functools.lru_cache(maxsize=4)(lambda pairs: pairs.words())
