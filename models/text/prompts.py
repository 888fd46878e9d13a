"""Text to ids and back: a tokenizer with its chat template, prompts, and the end of answers.

A tokenizer is read from a folder or from the hub, without running code from there.
"""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from remask.models.checkpoints import hub
from remask.models.checkpoints.hub_name import is_hub_name
from remask.models.text.chat_template import render
from remask.models.text.extension import add_end, add_mask
from remask.models.text.tokens import ENDS, MASKS

Message = Mapping[str, str]
"""A message of a conversation: `role` (system, user or assistant) and `content`."""

EQUIVALENT_CLASSES = {"DreamTokenizer": "Qwen2Tokenizer"}
"""Tokenizer classes that come as code, to classes of transformers that read the same files."""
REASON_LENGTH = 300
"""Maximum length of an error of transformers that is passed on."""
Added = Literal["nothing", "mask", "mask and end"]
"""What a tokenizer is given if it lacks it."""
MARKER = "\N{SNOWMAN}"
"""A character put into a message to find its position in the rendered conversation."""


class TextTokenizer:
    """A tokenizer with what prompts and answers need.

    Args:
        path_or_name: The folder of a tokenizer, or its hub name: `hf:owner/name@revision`, or
            `owner/name` as transformers reads it.
        mask_token: The mask token. Defaults to the one that the tokenizer names, or else to one of
            the usual spellings.
        adds: Tokens to add after the last id if the tokenizer lacks them.
    """

    def __init__(
        self, path_or_name: str, *, mask_token: str | None = None, adds: Added = "nothing"
    ) -> None:
        self.name = path_or_name
        self.inner = _read(path_or_name)
        own_ids = self.inner.get_vocab()
        if adds != "nothing" and self._usual_mask(mask_token, own_ids) is None:
            add_mask(self.inner, path_or_name)
        if adds == "mask and end" and self.inner.eos_token_id is None:
            add_end(self.inner, path_or_name)
        self._ids: dict[str, int] = self.inner.get_vocab()
        self.added = tuple(sorted(self._ids.keys() - own_ids, key=self._ids.__getitem__))
        """Tokens that the tokenizer lacked."""
        self.mask_id = self._find_mask(mask_token)
        self.bos_id: int | None = self.inner.bos_token_id
        self.eos_id: int | None = self.inner.eos_token_id
        ends = [self._ids.get(token) for token in ENDS] + [self.eos_id]
        self.end_ids = tuple(sorted({end for end in ends if end is not None}))
        """Tokens that end an answer: EOS and end-of-turn tokens."""

    @property
    def size(self) -> int:
        """Number of ids, up to the last one."""
        return max(self._ids.values()) + 1

    @property
    def hash(self) -> str:
        """Hash of everything that determines the ids of a text."""
        parts = [self.inner.backend_tokenizer.to_str(), repr(self.inner.special_tokens_map)]
        parts += [str(self.inner.chat_template), str(self.mask_id)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def has_chat(self) -> bool:
        return self.inner.chat_template is not None

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS or other special tokens around it."""
        try:
            return self.inner(text, add_special_tokens=False)["input_ids"]
        except TypeError as error:  # tokenizers raises it for half of a surrogate pair
            raise ValueError(f"tokenizer {self.name} cannot read {_short(text)}") from error

    def encode_prompt(
        self, prompt: str | Sequence[Message], *, chat: bool, bos: bool = True
    ) -> list[int]:
        """Ids of a prompt, which a model is to continue.

        Args:
            prompt: The messages of a conversation, or a text, which is one message of the user.
            chat: Render the messages by the chat template, including the generation prompt.
                Otherwise their contents are concatenated.
            bos: Begin with BOS, if the tokenizer has one and the template has not written it.
        """
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        text = self.render(messages) if chat else "".join(m["content"] for m in messages)
        ids = self.encode(text)
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids = [self.bos_id, *ids]
        if self.mask_id in ids:
            raise ValueError(
                f"the prompt contains the mask token {self.inner.decode([self.mask_id])!r}, which "
                f"no prompt may: {_short(text)}"
            )
        return ids

    def render_open(self, messages: Sequence[Message]) -> str:
        """A conversation up to the end of its last message, which the model is to continue."""
        *before, last = messages
        marked = {**last, "content": last["content"] + MARKER}
        text, marker, _ = self.render([*before, marked], add_generation_prompt=False).rpartition(
            MARKER
        )
        if not marker:
            raise ValueError(
                f"the chat template of tokenizer {self.name} leaves out the last message, which is "
                "to be continued"
            )
        return text

    @functools.cached_property
    def turn_end(self) -> list[int]:
        """The end token that the chat template writes after an assistant's message, if any."""
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": MARKER}]
        after = self.encode(self.render(messages).rpartition(MARKER)[2])
        return [i for i in after[:1] if i in self.end_ids]

    def encode_pair(
        self, context: str, continuation: str, *, bos: bool = False
    ) -> tuple[list[int], list[int]]:
        """A context and its continuation, tokenised together and then split.

        Whitespace at the end of the context moves to the continuation, because tokens begin with
        whitespace.
        """
        stripped = context.rstrip()
        continuation, context = context[len(stripped) :] + continuation, stripped
        prefix = self.encode_prompt(context, chat=False, bos=bos) if context or bos else []
        num_bos = len(prefix) - len(self.encode(context))
        suffix = self.encode(context + continuation)[len(prefix) - num_bos :]
        if not suffix or self.mask_id in suffix:
            raise ValueError(f"there is nothing to score in the continuation {continuation!r}")
        return prefix, suffix

    def decode_answer(self, ids: Sequence[int], stops: Sequence[str] = ()) -> str:
        """Text of an answer up to its first end token or stop, without special tokens."""
        ends = {*self.end_ids}
        length = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        text = self.inner.decode(
            list(ids[:length]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        text = cut_at_stops(text, stops)
        for added in self.inner.added_tokens_decoder.values():
            text = text.replace(added.content, "") if added.special else text
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Text of each token by itself. Special tokens have their names, and a token that is part
        of a character is U+FFFD."""
        texts = []
        for token_id, token in zip(ids, self.inner.convert_ids_to_tokens(list(ids)), strict=True):
            text = self.inner.decode([token_id], clean_up_tokenization_spaces=False)
            is_word = str(token).startswith("\N{LOWER ONE EIGHTH BLOCK}")  # SentencePiece's space
            texts.append(f" {text}" if is_word and not text.startswith(" ") else text)
        return texts

    def check_model(self, mask_id: int, vocab_size: int) -> None:
        """Raise ValueError unless a model with this mask id and vocabulary can use it.

        A model whose vocabulary ends just before the end token is accepted: it was trained on text
        without ends, and never writes one.
        """
        if mask_id != self.mask_id:
            where = f"has MASK at {self.mask_id}"
            if self.inner.convert_ids_to_tokens(self.mask_id) in self.added:
                where = f"has no MASK, which would get id {self.mask_id}"
            raise ValueError(
                f"tokenizer {self.name} {where}, the model at {mask_id}; use the tokenizer that "
                "the model was trained with"
            )
        last_id = max(x for x in self._ids.values() if x != self.eos_id or x != vocab_size)
        if last_id >= vocab_size:
            raise ValueError(
                f"tokenizer {self.name} has ids up to {last_id}, the model only {vocab_size} of "
                "them; use the tokenizer that the model was trained with"
            )

    def _usual_mask(self, named: str | None, ids: Mapping[str, int]) -> str | None:
        """The mask token: the one that is named here or by the tokenizer, or a usual one."""
        usual = [self.inner.mask_token, *MASKS]
        return named or next((t for t in usual if t is not None and t in ids), None)

    def _find_mask(self, named: str | None) -> int:
        token = self._usual_mask(named, self._ids)
        if token is None or token not in self._ids:
            which = named or f"such as {', '.join(MASKS)}"
            raise ValueError(
                f"tokenizer {self.name} has no mask token {which}; use a mask diffusion model's "
                "tokenizer, or say which of its tokens is MASK (mask_token)"
            )
        if named and self.inner.mask_token != named:
            self.inner.add_special_tokens({"mask_token": named})  # so that a saved copy says so
        return self._ids[token]

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """A conversation as the chat template writes it.

        Args:
            messages: All messages from the first on, at least one.
            add_generation_prompt: End with the header of the assistant's next message.
        """
        if not self.has_chat:
            raise ValueError(
                f"tokenizer {self.name} has no chat template; set chat: false, or use the "
                "tokenizer of an instruction-tuned model"
            )
        variables = {
            **self.inner.special_tokens_map,
            "messages": [dict(m) for m in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return render(self.inner.get_chat_template(), variables)
        except ValueError as error:
            raise ValueError(
                f"the chat template of tokenizer {self.name} fails: {error}; set chat: false, or "
                "correct its chat_template"
            ) from error


@functools.lru_cache(maxsize=4)
def load_tokenizer(
    path_or_name: str, mask_token: str | None = None, adds: Added = "mask and end"
) -> TextTokenizer:
    """The tokenizer of a folder or hub name, cached.

    A tokenizer without MASK or an end token gets one. To keep it, save `load_tokenizer(...).inner`
    with `save_pretrained`; that folder gives the same ids and the same hash.
    """
    return TextTokenizer(path_or_name, mask_token=mask_token, adds=adds)


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """A text up to the earliest of the stops."""
    return text[: min((text.index(s) for s in stops if s and s in text), default=len(text))]


def check_room(prompt_length: int, gen_length: int, max_length: int | None, what: str) -> None:
    """Raise ValueError if prompt and answer together exceed the positions of a model.

    Args:
        prompt_length: Number of tokens of the prompt.
        gen_length: Maximum number of tokens of the answer.
        max_length: Maximum number of positions of the model; None for no limit.
        what: Name of the prompt in the error.
    """
    if max_length is None or prompt_length + gen_length <= max_length:
        return
    left = max_length - prompt_length
    room = f"leaves room for {left}" if left > 0 else "leaves no room to answer"
    raise ValueError(
        f"{what}: a prompt of {prompt_length} tokens {room} in a model of {max_length} positions, "
        f"and gen_length is {gen_length}; give fewer shots or a smaller gen_length"
    )


def _read(path_or_name: str) -> Any:
    import transformers  # slow to import

    if is_hub_name(path_or_name):
        return _read(str(hub.tokenizer_files(path_or_name)))
    folder = Path(path_or_name)
    if _is_path(path_or_name) and not os.path.exists(folder):
        raise ValueError(
            f"cannot load tokenizer {path_or_name}: there is no such folder; pass the path of a "
            "folder with tokenizer.json, or a hub name such as org/name"
        )
    if os.path.isfile(folder):
        raise ValueError(
            f"cannot load tokenizer {path_or_name}: it is a file; pass the folder that it lies in"
        )
    kind = transformers.AutoTokenizer
    if os.path.isfile(folder / "tokenizer_config.json"):
        try:
            settings = json.loads((folder / "tokenizer_config.json").read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{folder / 'tokenizer_config.json'} is not JSON: {error}") from error
        name = settings.get("tokenizer_class") if isinstance(settings, dict) else None
        if isinstance(name, str) and name in EQUIVALENT_CLASSES:
            kind = getattr(transformers, EQUIVALENT_CLASSES[name])
    try:
        tokenizer = kind.from_pretrained(path_or_name, trust_remote_code=False)
        tokenizer.model_max_length = sys.maxsize  # models check lengths themselves
        return tokenizer
    except Exception as error:  # tokenizers raises a bare Exception for a file it cannot read
        reason = (str(error) or repr(error)).splitlines()[0][:REASON_LENGTH]
        raise ValueError(
            f"cannot load tokenizer {path_or_name}: {reason}; pass the path of a folder with "
            "tokenizer.json, or a hub name that can be reached"
        ) from error


def _is_path(path_or_name: str) -> bool:
    """Whether this cannot be a hub name, which is `name` or `org/name`."""
    is_anchored = path_or_name.startswith(("/", ".", "~")) or path_or_name.endswith("/")
    return is_anchored or path_or_name.count("/") > 1


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
