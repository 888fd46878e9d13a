"""Image edits as token rows: an instruction, and the codes of a picture before and after the edit.

The pictures of a pair are tokenised here, once for all builds that share the examples. For the
`source` proposal, the row with the source picture's codes in place of the target's is stored as
well.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remask.models import Backbone
from remask.models.checkpoints.shipped import lasting_name
from remask.models.images.edit_rows import EditLayout, EditRow, SourceIn
from remask.models.images.tokenizer import ImageTokenizer
from remask.models.images.tokenizer_folder import load_tokenizer, tokenizer_fingerprint
from remask.models.ranges import Range, check_fields
from remask.pipeline.edits import EditPair, EmojiPairs, FilePairs, ShapePairs
from remask.pipeline.edits.images import ImageError, Picture
from remask.pipeline.edits.pair import split_words
from remask.pipeline.edits.text import PublishedText, WordText
from remask.pipeline.format.examples import Examples, Vocabulary, pad
from remask.pipeline.runtime.places import PLACE

MAX_PAIRS = 64
"""Pairs held in memory as pixels while examples are made."""
MAX_PIXELS = 1 << 21
"""Pixels in one pass of the tokeniser: 8 pictures of 512 × 512."""
SAME_TOKENS = "source and target have the same tokens"


@dataclass(frozen=True, kw_only=True)
class ImageEditSource:
    """Pairs of pictures with instructions; the codes of the canvas are editable.

    The canvas is the grid of codes that becomes the target picture.
    """

    kind: Literal["image_edit"] = "image_edit"
    pairs: ShapePairs | EmojiPairs | FilePairs
    """Where the pairs of pictures come from."""
    tokenizer: str = field(metadata=PLACE)
    """Folder of the image tokeniser, or its name on the hub: `hf:owner/name@revision`."""
    text: WordText | PublishedText = field(default_factory=WordText)
    """How instructions become tokens."""
    source_in: SourceIn = "canvas"
    """Place of the source picture: in the `canvas`, to be revised into the target, or in the
    `prompt`, for models that fill an empty canvas."""
    max_length: Annotated[int, Range("[1, inf)")] = 5120
    """Limit on the tokens of a row; longer rows are left out."""
    equal: Literal["keep", "skip"] = "keep"
    """Whether to keep or skip no-op edits: pairs whose two pictures have the same pixels or the
    same tokens."""

    def __post_init__(self) -> None:
        check_fields(self)

    def own_proposals(self) -> tuple[str, ...]:
        return ("source",) if self.source_in == "canvas" else ()

    def tokenizer_hash(self) -> str:
        return f"{tokenizer_fingerprint(self.tokenizer)}-{self.text.hash(self._words)}"

    def data_hash(self) -> str | None:
        return self.pairs.data_hash()

    def with_absolute_paths(self) -> "ImageEditSource":
        return replace(
            self,
            tokenizer=lasting_name(self.tokenizer),
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

    def checker(self) -> None:
        """None: the only known right answer is the given one."""

    def num_records(self) -> dict[str, int]:
        """Pairs of each split, unreadable ones included."""
        return {split: count for split, count in self.pairs.num_pairs().items() if count}

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Those of the pairs first .. first+count-1 of a split that can be used; rng is unused."""
        used: list[tuple[EditPair, EditRow]] = []
        left_out: list[str] = []
        unchanged: list[str] = []
        usable = self.usable(split, range(first, first + count), left_out)
        for pairs in _batches(pair for _, pair in usable):
            source, target = (self.encode([getattr(p, x) for p in pairs]) for x in SIDES)
            for pair, *codes in zip(pairs, source, target, strict=True):
                row = self.row(pair.instruction, *codes)
                is_equal = torch.equal(*codes)
                if len(row.target) > self.max_length:
                    left_out.append(
                        f"{pair.pair_id}: a row of {len(row.target)} tokens is longer than "
                        f"max_length {self.max_length}"
                    )
                elif is_equal and self.equal == "skip":
                    left_out.append(f"{pair.pair_id}: {SAME_TOKENS}")
                else:
                    used.append((pair, row))
                    unchanged += [pair.pair_id] if is_equal else []
        return self._examples(used, left_out, unchanged)

    def usable(
        self, split: str, numbers: range, left_out: list[str]
    ) -> Iterator[tuple[int, EditPair]]:
        """The pairs that can be read, with their numbers; a line is appended to `left_out` for each
        of the others."""
        for number in numbers:
            try:
                pair = self.pairs.pair(split, number)
            except ImageError as error:
                left_out.append(str(error))
                continue
            try:
                self.text.prompt(pair.instruction, self._words)
            except ImageError as error:
                left_out.append(f"{pair.pair_id}: {error}")
                continue
            if self.equal == "skip" and pair.is_equal:
                left_out.append(f"{pair.pair_id}: source and target are the same picture")
                continue
            yield number, pair

    def check_model(self, backbone: Backbone) -> None:
        """Raise ValueError unless a model reads and writes edits with the ids of this source."""
        if backbone.layout is None:
            raise ValueError(f"image edits need a model of image edits, got {backbone.kind}")
        layout, mask_id = self.layout, self.text.mask_id
        if not backbone.layout.writes_same_rows(layout) or backbone.mask_id != mask_id:
            raise ValueError(
                f"the ids of the model and of the edits differ: {backbone.layout} with MASK "
                f"{backbone.mask_id}, and {layout} with MASK {mask_id}; use the tokeniser and text "
                "that the model was trained with"
            )

    def unknown_words(self, instruction: str) -> list[str]:
        """Words of an instruction that are mapped to the id of unknown words."""
        if not self.text.is_by_word:
            return []
        words = dict.fromkeys(split_words(instruction))
        return [word for word in words if word not in self._words]

    def grid(self, picture: Picture) -> tuple[int, int]:
        """Rows and columns of a picture's codes."""
        height, width = picture.shape[:2]
        return height // self.patch, width // self.patch

    @property
    def patch(self) -> int:
        """Pixels per side of the cell that a code represents."""
        return self._tokenizer.patch

    @property
    def layout(self) -> EditLayout:
        return self.text.layout(self._tokenizer.num_codes)

    def encode(self, pictures: Sequence[Picture]) -> list[Tensor]:
        """Codes of each picture, [h, w]."""
        for height, width in {picture.shape[:2] for picture in pictures}:
            if height % self.patch or width % self.patch:
                raise ValueError(
                    f"pictures of {height} × {width} pixels do not divide into the tokeniser's "
                    f"cells of {self.patch}; set pairs.side, height, width or step accordingly"
                )

        def run(same: list[Picture]) -> Tensor:
            images = torch.from_numpy(np.stack(same)).movedim(-1, 1).float() / 255
            return self._tokenizer.encode(images)

        return _by_shape(pictures, 1, run)

    def decode(self, codes: Sequence[Tensor]) -> list[Picture]:
        """Picture of each grid of codes, [h, w]."""

        def run(same: list[Tensor]) -> NDArray[np.uint8]:
            images = (self._tokenizer.decode(torch.stack(same)) * 255).round().to(torch.uint8)
            return images.movedim(1, -1).numpy()

        return _by_shape(codes, self.patch**2, run)

    def row(self, instruction: str, source: Tensor, target: Tensor) -> EditRow:
        """An edit's tokens; `source` and `target` are codes, [h, w]."""
        prompt = self.text.prompt(instruction, self._words)
        return self.layout.row(prompt, source, target, self.source_in)

    def row_length(self, pair: EditPair) -> int:
        """Tokens of an edit's row."""
        blank = torch.zeros(self.grid(pair.source), dtype=torch.long)
        return len(self.row(pair.instruction, blank, blank).target)

    @property
    def _words(self) -> tuple[str, ...]:
        return _words(self.pairs) if self.text.is_by_word else ()

    @property
    def _tokenizer(self) -> ImageTokenizer:
        return _load_tokenizer(self.tokenizer)

    def _examples(
        self, used: list[tuple[EditPair, EditRow]], left_out: list[str], unchanged: list[str]
    ) -> Examples:
        vocabulary = self.vocabulary()
        rows = [row for _, row in used]
        target, lengths = pad([row.target.numpy() for row in rows], vocabulary.dtype)
        starts, _ = pad([row.wrong.numpy() for row in rows], vocabulary.dtype)
        editable, _ = pad([row.editable.numpy() for row in rows], np.dtype(np.bool_))
        return Examples(
            example_ids=[pair.pair_id for pair, _ in used],
            target=target,
            editable=editable,
            lengths=lengths,
            prompt_lengths=np.array([row.prompt_length for row in rows], np.int32),
            vocabulary=vocabulary,
            num_skipped=len(left_out),
            starts=starts if self.source_in == "canvas" else None,
            left_out=left_out,
            unchanged=unchanged,
        )


SIDES = ("source", "target")


def _batches(pairs: Iterator[EditPair]) -> Iterator[list[EditPair]]:
    while batch := list(itertools.islice(pairs, MAX_PAIRS)):
        yield batch


def _by_shape(
    items: Sequence[Any], cell: int, run: Callable[[list[Any]], Iterable[Any]]
) -> list[Any]:
    """The results of `run` on batches of items of one shape, in the order of the items.

    Args:
        items: Arrays of [h, w, ...].
        cell: Pixels that one cell of an item represents.
        run: Maps a list of items of one shape to a result per item.
    """
    results: dict[int, Any] = {}
    for shape in dict.fromkeys(tuple(x.shape) for x in items):
        indices = [i for i, x in enumerate(items) if tuple(x.shape) == shape]
        size = max(1, MAX_PIXELS // (shape[0] * shape[1] * cell))
        for first in range(0, len(indices), size):
            batch = indices[first : first + size]
            results |= zip(batch, run([items[i] for i in batch]), strict=True)
    return [results[i] for i in range(len(items))]


@functools.lru_cache(maxsize=2)
def _load_tokenizer(folder: str) -> ImageTokenizer:
    return load_tokenizer(folder, device="cuda" if torch.cuda.is_available() else "cpu")


_words = functools.lru_cache(maxsize=4)(lambda pairs: pairs.words())
