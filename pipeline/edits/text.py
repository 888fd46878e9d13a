"""Instructions as ids, and the ids that edits are written with around them."""

import functools
import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

from remask.models.images.edit_rows import EditLayout
from remask.models.images.tokens import ImageLayout
from remask.models.text.prompts import TextTokenizer
from remask.pipeline.edits.images import ImageError
from remask.pipeline.edits.pair import split_words
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute_if_here

PADDING, MASK, NEWLINE, BEGIN, END, UNCONDITIONAL, TEXT_END, UNKNOWN = range(8)
"""The first ids of a word vocabulary; words follow. Batches are padded with 0, so MASK is not."""


@dataclass(frozen=True, kw_only=True)
class WordText:
    """A word is an id: enough for instructions of few words, and small models of one's own."""

    kind: Literal["words"] = "words"
    size: int = 256
    """Ids for marks and words; those of codes come after. Some may be unused."""

    def __post_init__(self) -> None:
        if self.size <= UNKNOWN:
            raise ValueError(
                f"text.size must be more than {UNKNOWN}, for the marks; got {self.size}"
            )

    def with_absolute_paths(self) -> "WordText":
        return self

    @property
    def mask_id(self) -> int:
        return MASK

    def layout(self, num_codes: int) -> EditLayout:
        """For an image tokeniser of so many codes."""
        image = ImageLayout(
            code_offset=self.size,
            num_codes=num_codes,
            newline_id=NEWLINE,
            begin_id=BEGIN,
            end_id=END,
        )
        return EditLayout(
            image=image,
            unconditional_id=UNCONDITIONAL,
            answer_id=None,
            answer_end_id=None,
            text_end_id=TEXT_END,
        )

    def prompt(self, instruction: str, words: tuple[str, ...]) -> list[int]:
        """An instruction's ids, by the words there are; others are all one id.

        Raises:
            ImageError: The instruction has no word.
        """
        known = _numbers(words, self.size)
        said = split_words(instruction)
        if not said:
            raise ImageError(f"the instruction {instruction!r} has no word")
        return [*(known.get(word, UNKNOWN) for word in said), TEXT_END]

    def hash(self, words: tuple[str, ...]) -> str:
        return hashlib.sha256(repr((self.size, _numbers(words, self.size))).encode()).hexdigest()[
            :16
        ]


@dataclass(frozen=True, kw_only=True)
class PublishedText:
    """A published model's tokenizer and prompt. The defaults are Lumina-DiMOO's."""

    kind: Literal["published"] = "published"
    tokenizer: str = field(metadata=PLACE)
    """Folder or hub name of a Hugging Face tokenizer."""
    template: str = "<system>{system}</system><user>{instruction}</user>"
    """A source picture in the prompt stands before its last token."""
    system: str = (
        "Generate an image applying the following editing instruction based on the original image."
    )
    """Told before the instruction; a pretrained model does best with what it was trained on."""
    ids: EditLayout = field(default_factory=EditLayout)

    def __post_init__(self) -> None:
        if "{instruction}" not in self.template:
            raise ValueError(
                f"text.template must have {{instruction}} in it, got {self.template!r}"
            )

    def with_absolute_paths(self) -> "PublishedText":
        return replace(self, tokenizer=absolute_if_here(self.tokenizer))

    @property
    def mask_id(self) -> int:
        return _tokenizer(self.tokenizer).mask_id

    def layout(self, num_codes: int) -> EditLayout:
        if num_codes != self.ids.image.num_codes:
            raise ValueError(
                f"the image tokeniser has {num_codes} codes, the model's ids are for "
                f"{self.ids.image.num_codes}; use the tokeniser that the model was trained with"
            )
        return self.ids

    def prompt(self, instruction: str, words: tuple[str, ...]) -> list[int]:
        """The ids of the whole template.

        Raises:
            ImageError: The instruction holds special tokens, which would mean what they mean.
        """
        tokenizer = _tokenizer(self.tokenizer)
        added = {*tokenizer.inner.get_added_vocab().values()} - {tokenizer.inner.unk_token_id}
        special = {*added, self.mask_id, *self.ids.ids}
        found, usual = (
            tokenizer.encode(
                self.template.replace("{system}", self.system).replace("{instruction}", said)
            )
            for said in (instruction, "x")
        )
        marks = [[x for x in ids if x in special] for ids in (found, usual)]
        if marks[0] != marks[1]:
            raise ImageError(f"the instruction {instruction!r} holds special tokens")
        return found

    def hash(self, words: tuple[str, ...]) -> str:
        return _tokenizer(self.tokenizer).hash


_tokenizer = functools.lru_cache(maxsize=2)(TextTokenizer)


@functools.lru_cache(maxsize=4)
def _numbers(words: tuple[str, ...], size: int) -> dict[str, int]:
    """Ids of words, in their order."""
    if UNKNOWN + 1 + len(words) > size:
        raise ValueError(
            f"the instructions have {len(words)} words, text.size {size} has room for "
            f"{size - UNKNOWN - 1}; make it {UNKNOWN + 1 + len(words)} or more"
        )
    return {word: UNKNOWN + 1 + i for i, word in enumerate(words)}
