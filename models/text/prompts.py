"""Text to ids and back: a tokenizer with its chat template, prompts, and where an answer ends.

A tokenizer is read from a folder, or a hub name, without any code of the folder's.
"""

import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remask.models.text.chat_template import render
from remask.models.text.tokens import ENDS, MASKS

Round = Mapping[str, str]
"""Of a conversation: its `role` (system, user or assistant) and its `content`."""

SAME_AS = {"DreamTokenizer": "Qwen2Tokenizer"}
"""Classes that come as code in a folder, to those of transformers that read the same files."""


REASON_LENGTH = 300
"""Characters of an error of transformers that are passed on."""
SNOWMAN = "\N{SNOWMAN}"
"""Stands in a conversation where one wants to find a place in what a template makes of it."""


class TextTokenizer:
    """A tokenizer as prompts and answers need it.

    Args:
        path_or_name: The folder of a tokenizer, or its hub name.
        mask_token: The mask token, where the tokenizer does not name one of the usual spelling.
    """

    def __init__(self, path_or_name: str, *, mask_token: str | None = None) -> None:
        self.name = path_or_name
        self.inner = _read(path_or_name)
        self._ids: dict[str, int] = self.inner.get_vocab()
        self.mask_id = self._find_mask(mask_token)
        self.bos_id: int | None = self.inner.bos_token_id
        self.eos_id: int | None = self.inner.eos_token_id
        ends = [self._ids.get(token) for token in ENDS] + [self.eos_id]
        self.end_ids = tuple(sorted({end for end in ends if end is not None}))
        """Tokens that end an answer: EOS, and the ends of a turn."""

    @property
    def hash(self) -> str:
        """Of all that decides which ids a text becomes."""
        parts = [self.inner.backend_tokenizer.to_str(), repr(self.inner.special_tokens_map)]
        parts += [str(self.inner.chat_template), str(self.mask_id)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def has_chat(self) -> bool:
        return self.inner.chat_template is not None

    def encode(self, text: str) -> list[int]:
        """A text alone, without BOS or any other token around it."""
        try:
            return self.inner(text, add_special_tokens=False)["input_ids"]
        except TypeError as error:  # what tokenizers says of half a surrogate pair
            raise ValueError(f"tokenizer {self.name} cannot read {_short(text)}") from error

    def encode_prompt(
        self, prompt: str | Sequence[Round], *, chat: bool, bos: bool = True
    ) -> list[int]:
        """What a model is to continue.

        Args:
            prompt: A text, or the rounds of a conversation; a text is one round of the user's.
            chat: By the chat template, up to where the assistant is to speak. Without it rounds are
                written one after the other, as they are.
            bos: Begin with BOS, if the tokenizer has one and the template has not done so.
        """
        rounds = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        text = self.render(rounds) if chat else "".join(r["content"] for r in rounds)
        ids = self.encode(text)
        if bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids = [self.bos_id, *ids]
        if self.mask_id in ids:
            raise ValueError(
                f"the prompt contains the mask token {self.inner.decode([self.mask_id])!r}, which "
                f"no prompt may: {_short(text)}"
            )
        return ids

    def render_open(self, rounds: Sequence[Round]) -> str:
        """A conversation up to where its last round's content ends, for the model to go on."""
        *before, last = rounds
        marked = {**last, "content": last["content"] + SNOWMAN}
        text, mark, _ = self.render([*before, marked], add_generation_prompt=False).rpartition(
            SNOWMAN
        )
        if not mark:
            raise ValueError(
                f"the chat template of tokenizer {self.name} leaves out the last round, which is "
                "to be continued"
            )
        return text

    @functools.cached_property
    def turn_end(self) -> list[int]:
        """What the chat template ends an assistant's turn with; nothing if that is no end token."""
        rounds = [{"role": "user", "content": "?"}, {"role": "assistant", "content": SNOWMAN}]
        after = self.encode(self.render(rounds).rpartition(SNOWMAN)[2])
        return [i for i in after[:1] if i in self.end_ids]

    def encode_pair(
        self, context: str, continuation: str, *, bos: bool = False
    ) -> tuple[list[int], list[int]]:
        """A text and what follows it, tokenised together and then parted.

        Blanks that end the context go over to the continuation, for tokens begin with them.
        """
        stripped = context.rstrip()
        continuation, context = context[len(stripped) :] + continuation, stripped
        first = self.encode_prompt(context, chat=False, bos=bos) if context or bos else []
        skipped = len(first) - len(self.encode(context))  # BOS
        rest = self.encode(context + continuation)[len(first) - skipped :]
        if not rest or self.mask_id in rest:
            raise ValueError(f"there is nothing to score in the continuation {continuation!r}")
        return first, rest

    def decode_answer(self, ids: Sequence[int], stops: Sequence[str] = ()) -> str:
        """The text of an answer: up to its first end token and first stop, no special tokens."""
        ends = {*self.end_ids}
        length = next((i for i, token in enumerate(ids) if token in ends), len(ids))
        text = self.inner.decode(
            list(ids[:length]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        text = cut_at_stops(text, stops)
        for added in self.inner.added_tokens_decoder.values():
            text = text.replace(added.content, "") if added.special else text
        return text

    def check_model(self, mask_id: int, vocab_size: int) -> None:
        """Raise ValueError unless a model of this mask id and vocabulary can use it."""
        if mask_id != self.mask_id:
            raise ValueError(
                f"tokenizer {self.name} has MASK at {self.mask_id}, the model at {mask_id}; use "
                "the tokenizer that the model was trained with"
            )
        most = max(self._ids.values())
        if most >= vocab_size:
            raise ValueError(
                f"tokenizer {self.name} has ids up to {most}, the model only {vocab_size} of them"
            )

    def _find_mask(self, named: str | None) -> int:
        usual = [self.inner.mask_token, *MASKS]
        token = named or next((t for t in usual if t is not None and t in self._ids), None)
        if token is None or token not in self._ids:
            which = named or f"such as {', '.join(MASKS)}"
            raise ValueError(
                f"tokenizer {self.name} has no mask token {which}; use a mask diffusion model's "
                "tokenizer, or say which of its tokens is MASK (mask_token)"
            )
        return self._ids[token]

    def render(self, rounds: Sequence[Round], *, add_generation_prompt: bool = True) -> str:
        """A conversation as its chat template writes it.

        Args:
            rounds: From the first on, at least one.
            add_generation_prompt: Go on up to where the assistant is to speak.
        """
        if not self.has_chat:
            raise ValueError(
                f"tokenizer {self.name} has no chat template; set chat: false, or use the "
                "tokenizer of an instruction-tuned model"
            )
        variables = {
            **self.inner.special_tokens_map,
            "messages": [dict(r) for r in rounds],
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
def load_tokenizer(path_or_name: str, mask_token: str | None = None) -> TextTokenizer:
    """The tokenizer of a folder or hub name; read once."""
    return TextTokenizer(path_or_name, mask_token=mask_token)


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """A text up to where the first of any stops begins."""
    return text[: min((text.index(s) for s in stops if s and s in text), default=len(text))]


def check_room(prompt_length: int, gen_length: int, max_length: int | None, what: str) -> None:
    """Raise ValueError if prompt and answer do not fit a model together.

    Args:
        prompt_length: Tokens of the prompt.
        gen_length: Tokens of the answer, at most.
        max_length: Positions that the model takes; any number when none.
        what: Which prompt it is, for the error.
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

    folder = Path(path_or_name)
    if _is_path(path_or_name) and not os.path.exists(folder):
        raise ValueError(
            f"cannot load tokenizer {path_or_name}: there is no such folder; pass the path of a "
            "folder with tokenizer.json, or a hub name such as org/name"
        )
    kind = transformers.AutoTokenizer
    if os.path.isfile(folder / "tokenizer_config.json"):
        try:
            settings = json.loads((folder / "tokenizer_config.json").read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{folder / 'tokenizer_config.json'} is not JSON: {error}") from error
        name = settings.get("tokenizer_class") if isinstance(settings, dict) else None
        if isinstance(name, str) and name in SAME_AS:
            kind = getattr(transformers, SAME_AS[name])
    try:
        tokenizer = kind.from_pretrained(path_or_name, trust_remote_code=False)
        tokenizer.model_max_length = sys.maxsize  # only to warn by; lengths are checked by models
        return tokenizer
    except Exception as error:  # tokenizers raises no other class for a file it cannot read
        reason = (str(error) or repr(error)).splitlines()[0][:REASON_LENGTH]
        raise ValueError(
            f"cannot load tokenizer {path_or_name}: {reason}; pass the path of a folder with "
            "tokenizer.json, or a hub name that can be reached"
        ) from error


def _is_path(path_or_name: str) -> bool:
    """Is it written as no hub name can be? Those are `name` or `org/name`."""
    is_written_so = path_or_name.startswith(("/", ".", "~")) or path_or_name.endswith("/")
    return is_written_so or path_or_name.count("/") > 1


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
