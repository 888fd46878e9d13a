"""Instructions as token ids, and the special ids around them in an edit's row."""

import functools
import hashlib
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from remask.models.images.edit_rows import EditLayout
from remask.models.images.tokens import ImageLayout
from remask.models.ranges import Range, check_fields
from remask.models.text.prompts import TextTokenizer
from remask.pipeline.edits.images import ImageError
from remask.pipeline.edits.pair import split_words
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute_if_here

PADDING, MASK, NEWLINE, BEGIN, END, UNCONDITIONAL, TEXT_END, UNKNOWN = range(8)
"""The first ids of a word vocabulary; words follow. Batches are padded with 0, so MASK is not 0."""


@dataclass(frozen=True, kw_only=True)
class WordText:
    """One id per word: enough for small vocabularies and models trained from scratch."""

    is_by_word: ClassVar[bool] = True

    kind: Literal["words"] = "words"
    size: Annotated[int, Range("[8, inf)", "the first 8 ids are special")] = 256
    """Ids for special tokens and words; some may be unused. The ids of image codes follow."""

    def __post_init__(self) -> None:
        check_fields(self, "text.")

    def with_absolute_paths(self) -> "WordText":
        return self

    @property
    def mask_id(self) -> int:
        return MASK

    def layout(self, num_codes: int) -> EditLayout:
        """The ids of an edit's row, for an image tokeniser with so many codes."""
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
        """An instruction's ids; all words that are not in `words` share the id UNKNOWN.

        Raises:
            ImageError: The instruction has no word.
        """
        ids = _word_ids(words, self.size)
        instruction_words = split_words(instruction)
        if not instruction_words:
            raise ImageError(f"the instruction {instruction!r} has no word")
        return [*(ids.get(word, UNKNOWN) for word in instruction_words), TEXT_END]

    def hash(self, words: tuple[str, ...]) -> str:
        content = repr((self.size, _word_ids(words, self.size)))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class PublishedText:
    """A published model's tokenizer and prompt. The defaults are Lumina-DiMOO's."""

    is_by_word: ClassVar[bool] = False

    kind: Literal["published"] = "published"
    tokenizer: str = field(metadata=PLACE)
    """Folder of a Hugging Face tokenizer, or its hub name: `hf:owner/name@revision`."""
    template: str = "<system>{system}</system><user>{instruction}</user>"
    """Template of the prompt; a source picture in the prompt precedes its last token."""
    system: str = (
        "Generate an image applying the following editing instruction based on the original image."
    )
    """The system prompt; a pretrained model does best with the one it was trained on."""
    ids: EditLayout = field(default_factory=EditLayout)
    """The ids that the rows of this model are written with."""

    def __post_init__(self) -> None:
        if "{instruction}" not in self.template:
            raise ValueError(f"text.template must contain {{instruction}}, got {self.template!r}")

    def with_absolute_paths(self) -> "PublishedText":
        return replace(self, tokenizer=absolute_if_here(self.tokenizer))

    @property
    def mask_id(self) -> int:
        return _tokenizer(self.tokenizer).mask_id

    def layout(self, num_codes: int) -> EditLayout:
        if num_codes != self.ids.image.num_codes:
            raise ValueError(
                f"the image tokeniser has {num_codes} codes, the model has ids for "
                f"{self.ids.image.num_codes}; use the tokeniser that the model was trained with"
            )
        return self.ids

    def prompt(self, instruction: str, words: tuple[str, ...]) -> list[int]:
        """The ids of the whole template.

        Raises:
            ImageError: The instruction contains special tokens, which the model would obey.
        """
        tokenizer = _tokenizer(self.tokenizer)
        added = {*tokenizer.inner.get_added_vocab().values()} - {tokenizer.inner.unk_token_id}
        special = {*added, self.mask_id, *self.ids.ids}
        template = self.template.replace("{system}", self.system)
        prompt, plain = (
            tokenizer.encode(template.replace("{instruction}", text)) for text in (instruction, "x")
        )
        if [x for x in prompt if x in special] != [x for x in plain if x in special]:
            raise ImageError(f"the instruction {instruction!r} holds special tokens")
        return prompt

    def hash(self, words: tuple[str, ...]) -> str:
        return _tokenizer(self.tokenizer).hash


_tokenizer = functools.lru_cache(maxsize=2)(TextTokenizer)


@functools.lru_cache(maxsize=4)
def _word_ids(words: tuple[str, ...], size: int) -> dict[str, int]:
    """Ids of words, ascending in their order."""
    if UNKNOWN + 1 + len(words) > size:
        raise ValueError(
            f"the instructions have {len(words)} words, text.size {size} has room for "
            f"{size - UNKNOWN - 1}; make it {UNKNOWN + 1 + len(words)} or more"
        )
    return {word: UNKNOWN + 1 + i for i, word in enumerate(words)}
