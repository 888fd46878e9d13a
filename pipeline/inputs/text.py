"""Text as inputs: a prompt, and a draft of its response to be revised, or nothing.

A row is written as the rows of training were (`pipeline/sources/text.py`): the prompt by its
template, the response, its end, and end tokens up to a multiple of `eos_bucket`. What follows a
draft begins as end tokens, or as MASK if the draft itself ends with MASK. Without a draft, all of
the response begins as MASK.
"""

import functools
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from remask.models import Backbone
from remask.models.ranges import Range, check_fields
from remask.models.text.prompts import Message, TextTokenizer, load_tokenizer
from remask.pipeline.inputs.reader import END_CELL, MASK_CELL, Start, check_request

MASK_SIGN = "▒"
"""How people may write MASK in a draft, whatever its token is called."""
MAX_LENGTH = 1 << 20
"""Limit on the tokens of a row."""
ROOM = 64
"""Tokens of a response that is written from nothing, unless the row's length is fixed."""
MAX_ROOM = 4096
"""Limit on the tokens of a response whose length is not asked for."""
ANCHORS = "xao01"
"""Characters that another token is decoded after, so that its leading space is kept."""


@dataclass(frozen=True, kw_only=True)
class TextInputs:
    """How prompts and responses become rows; the keys are those of a text source."""

    kind: Literal["text"] = "text"
    prompt: str = "{prompt}"
    """Template of the prompt. A prompt takes the place of its field; if the template has several,
    it is used as it is."""
    response: str = "{response}"
    """Template that the responses were written by; a draft is used as it is."""
    chat: bool = False
    """Apply the tokenizer's chat template."""
    max_length: Annotated[int, Range("[2, 2^20]")] = MAX_LENGTH
    """Tokens of prompt and response together."""
    mask_token: str | None = None
    append_eos: bool = True
    """Responses end with the tokenizer's end token."""
    eos_bucket: Annotated[int | None, Range("[1, 2^20]")] = None
    """Rows are padded with end tokens to a multiple of this many tokens."""

    def __post_init__(self) -> None:
        check_fields(self)
        template_parts(self.prompt)

    def reader(self, folder: str, backbone: Backbone) -> "TextReader":
        tokenizer = load_tokenizer(str(Path(folder).absolute()), self.mask_token)
        tokenizer.check_model(backbone.mask_id, backbone.vocab_size)
        if self.chat and not tokenizer.has_chat:
            raise ValueError(f"{folder} says chat: true, but its tokenizer has no chat template")
        return TextReader(self, tokenizer, backbone.max_length)


class TextReader:
    """Reads prompts and drafts for one model."""

    kind: Literal["text"] = "text"

    def __init__(
        self, inputs: TextInputs, tokenizer: TextTokenizer, max_length: int | None
    ) -> None:
        self.inputs, self.tokenizer = inputs, tokenizer
        self._limit = min(inputs.max_length, max_length or inputs.max_length)
        self._mask = str(tokenizer.inner.convert_ids_to_tokens(tokenizer.mask_id))

    def start(self, request: Mapping[str, Any]) -> Start:
        check_request(request, {"prompt": str, "draft": str, "length": int}, ["prompt"])
        prompt = request["prompt"]
        if not prompt.strip():
            raise ValueError("the prompt is empty; say what the model should answer")
        notes = self._check_readable(prompt, "prompt")
        if len(self._fields) != 1:
            notes.append(
                f"the template has {len(self._fields)} fields, so the prompt is used as is"
            )
        ids = self.tokenizer.encode_prompt(self._fill_template(prompt), chat=self.inputs.chat)
        return self._start(ids, prompt, request.get("draft"), request.get("length"), notes)

    def start_chat(self, messages: Sequence[Message], length: int | None = None) -> Start:
        """The start of the answer to a conversation, whose last message is the user's.

        Without a chat template the last message alone is the prompt.
        """
        prompt = messages[-1]["content"]
        if not self.inputs.chat:
            return self.start({"prompt": prompt, "length": length})
        if not prompt.strip():
            raise ValueError("the message is empty; say what the model should answer")
        notes = self._check_readable(prompt, "message")
        ids = self.tokenizer.encode_prompt(messages, chat=True)
        return self._start(ids, prompt, None, length, notes)

    def cells(self, ids: Sequence[int]) -> list[str]:
        return [self._cell(token) for token in ids]

    def result(self, start: Start, tokens: Tensor) -> str:
        return self.tokenizer.decode_answer(tokens[start.shown].tolist())

    def pictures(self, start: Start, states: Tensor) -> None:
        return None

    def _start(
        self,
        prompt_ids: list[int],
        prompt: str,
        draft: str | None,
        length: int | None,
        notes: list[str],
    ) -> Start:
        if length is not None and length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        mask_id, room = self.tokenizer.mask_id, self._limit - len(prompt_ids)
        if room < 1 or (length or 0) > room:
            raise ValueError(
                f"the prompt has {len(prompt_ids)} tokens, which leaves room for {max(room, 0)} in "
                f"rows of {self._limit}; "
                + (f"give a length of at most {room}" if room > 0 else "give a shorter prompt")
            )
        if not draft:
            default = min(room, MAX_ROOM, self._blank_room(len(prompt_ids)))
            response = [mask_id] * (length or default)
        else:
            notes += self._check_readable(draft, "draft")
            response = self._draft_row(draft, len(prompt_ids), length, room)
            num_masks = self._draft_ids(draft).count(mask_id)
            if num_masks:
                plural = "s" if num_masks > 1 else ""
                notes.append(f"the draft holds {num_masks} MASK{plural}, to be filled in")
        tokens = torch.tensor([*prompt_ids, *response])
        editable = torch.arange(len(tokens)) >= len(prompt_ids)
        return Start(
            tokens=tokens,
            editable=editable,
            shown=editable.nonzero()[:, 0],
            is_blank=bool((tokens[editable] == mask_id).all()),
            prompt=prompt,
            notes=tuple(notes),
        )

    def _draft_row(self, draft: str, before: int, length: int | None, room: int) -> list[int]:
        """Ids of the response that begins with a draft."""
        ids = self._draft_ids(draft)
        allowed = length or room
        if len(ids) > allowed:
            raise ValueError(
                f"the draft has {len(ids)} tokens, and there is room for {allowed}; "
                + ("give a larger length" if length else "give a shorter draft or prompt")
            )
        ended = (ids + self._ends)[:allowed]
        padded = self._padded(before + len(ended)) - before
        size = length or min(padded, room, max(MAX_ROOM, len(ended)))
        is_open = ids[-1:] == [self.tokenizer.mask_id]
        filler = self.tokenizer.eos_id
        if is_open or not self.inputs.append_eos or filler is None:
            filler = self.tokenizer.mask_id
        first = ids if is_open and size > len(ended) else ended
        return first + [filler] * (size - len(first))

    def _blank_room(self, before: int) -> int:
        """Tokens of a response from nothing, after a prompt of so many."""
        return self._padded(before + min(ROOM, max(1, self._limit - before))) - before

    def _padded(self, length: int) -> int:
        bucket = self.inputs.eos_bucket or 1
        return -(-length // bucket) * bucket

    @functools.cached_property
    def _ends(self) -> list[int]:
        """Ids that end a response."""
        ends = list(self.tokenizer.turn_end) if self.inputs.chat else []
        if self.inputs.append_eos and self.tokenizer.eos_id is not None:
            ends.append(self.tokenizer.eos_id)
        return ends

    def _draft_ids(self, draft: str) -> list[int]:
        ids: list[int] = []
        for number, part in enumerate(re.split(f"{MASK_SIGN}|{re.escape(self._mask)}", draft)):
            ids += [self.tokenizer.mask_id] * (number > 0)
            ids += self.tokenizer.encode(part) if part else []
        return ids

    @functools.cached_property
    def _fields(self) -> set[str]:
        """The fields that the prompt's template names."""
        parts = template_parts(self.inputs.prompt)
        return {name for _, name in parts if name is not None}

    def _fill_template(self, prompt: str) -> str:
        if len(self._fields) != 1:
            return prompt
        parts = template_parts(self.inputs.prompt)
        return "".join(text + ("" if name is None else prompt) for text, name in parts)

    def _check_readable(self, text: str, what: str) -> list[str]:
        """A note on characters that have no token of their own.

        Raises ValueError if the tokenizer would drop them.
        """
        plain = text.replace(MASK_SIGN, "") if what == "draft" else text
        ids, unknown_id = self.tokenizer.encode(plain), self.tokenizer.inner.unk_token_id
        if unknown_id is not None:
            has_unknown = unknown_id in ids
            return [f"the {what} holds characters that the model has no token for"] * has_unknown
        characters = dict.fromkeys(x for x in plain if not x.isspace())
        dropped = "".join(x for x in characters if not self.tokenizer.encode(x))
        if dropped:
            raise ValueError(f"the {what} holds {dropped[:20]!r}, which the model has no token for")
        return []

    @functools.cached_property
    def _anchor(self) -> list[int]:
        """Ids of a short text that any token can be decoded after; empty if there is none."""
        for text in ANCHORS:
            ids = self.tokenizer.encode(text)
            if len(ids) == 1 and self._decode(ids) == text:
                return ids
        return []

    def _cell(self, token: int) -> str:
        if token == self.tokenizer.mask_id:
            return MASK_CELL
        return END_CELL if token in self.tokenizer.end_ids else self._texts(token)

    @functools.cached_property
    def _texts(self) -> Any:
        """A token's id to its text, cached."""

        @functools.lru_cache(maxsize=1 << 16)
        def text_of(token: int) -> str:
            before = self._decode(self._anchor)
            whole = self._decode([*self._anchor, token])
            return whole.removeprefix(before) if whole.startswith(before) else whole

        return text_of

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.inner.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


def template_parts(template: str) -> list[tuple[str, str | None]]:
    """A template as text and the name of the field that follows it; None after the last.

    The template may come from a downloaded folder, so it is never given to `str.format`, whose
    attributes and widths can read and allocate what they like.
    """
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"prompt {template[:80]!r} is no template: {error}") from error
    return [
        (text, None if name is None else re.split(r"[.\[]", name)[0]) for text, name, _, _ in parsed
    ]
