"""The vocabulary in a folder's tokenizer files: ids of tokens, MASK, special and unused tokens.

The files are read as JSON and text. The tokenizer is not built, and no code of the folder is run.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask.models.checkpoints.folder import CheckpointError

FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "added_tokens.json", "tokenizer_config.json")
MASKS = ("[MASK]", "<mask>", "<|mask|>", "<|mdm_mask|>")
"""Usual mask tokens, for tokenizers that do not say which of their tokens is MASK."""
ENDS = ("<|endoftext|>", "<|eot_id|>", "<|im_end|>")
"""Special tokens that may be revealed, because models end an answer with them."""
UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer."""

    ids: dict[str, int]
    """Id of every token; empty for a folder without tokenizer files."""
    special: frozenset[str]
    mask: str | None
    """The mask token that the files name, or else one of `MASKS` that is in the vocabulary."""
    end: str | None
    """The end-of-sequence token."""

    def excluded_ids(self, vocab_size: int) -> tuple[int, ...]:
        """Ids below vocab_size that are never revealed: unused ids, and special ids but ends."""
        if not self.ids:
            return ()
        ends = {*ENDS, self.end}
        usable = {
            i for token, i in self.ids.items()
            if token in ends or not (token in self.special or UNUSED.fullmatch(token))
        }  # fmt: skip
        return tuple(i for i in range(vocab_size) if i not in usable)


def tokenizer_files(folder: Path) -> list[Path]:
    """The tokenizer files that a folder has, in a fixed order."""
    names = (*FILES, "special_tokens_map.json", "chat_template.jinja", "merges.txt")
    return [folder / name for name in names if (folder / name).is_file()]


def read_vocabulary(folder: Path) -> Vocabulary:
    """Read the tokenizer files that a folder has."""
    whole, vocab, added, settings, named = (
        _read(folder / name)
        for name in (
            "tokenizer.json",
            "vocab.json",
            "added_tokens.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
        )
    )
    try:
        ids = _listed(folder / "vocab.txt") | vocab | _model_ids(whole) | added
        entries = whole.get("added_tokens", []) + [
            {"id": int(i), **entry} for i, entry in settings.get("added_tokens_decoder", {}).items()
        ]
        ids |= {entry["content"]: entry["id"] for entry in entries}
        special = {entry["content"] for entry in entries if entry.get("special")}
        roles = {
            key: _content(value)
            for key, value in (named | settings).items()
            if key.endswith("_token") and value is not None and not isinstance(value, bool)
        }
        special |= {*roles.values(), *_extra_special(named), *_extra_special(settings)}
        if not all(type(i) is int and type(token) is str for token, i in ids.items()):
            raise TypeError("an id is not a whole number, or a token is not text")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{folder}: its tokenizer files are damaged: {error!r}") from error
    mask = roles.get("mask_token") or next((x for x in MASKS if x in ids), None)
    return Vocabulary(ids, frozenset(special), mask, roles.get("eos_token"))


def find_mask(folder: Path, vocabulary: Vocabulary, configured: Any = None) -> int:
    """The id of the mask token.

    Args:
        folder: The folder of the model, for errors.
        vocabulary: The tokens of its tokenizer.
        configured: `mask_token_id` of its config.json, which takes precedence. Defaults to the
            tokenizer's mask token.

    Raises:
        CheckpointError: Neither the config nor the tokenizer names a mask token.
    """
    if configured is not None:
        if type(configured) is not int:
            raise CheckpointError(f"{folder}: mask_token_id must be an id, got {configured!r}")
        return configured
    if not vocabulary.ids:
        raise CheckpointError(
            f"{folder} does not say which id is MASK: config.json has no mask_token_id, and there "
            f"is no tokenizer beside it (any of {', '.join(FILES)})"
        )
    mask = vocabulary.mask
    if mask is None or mask not in vocabulary.ids:
        which = f"its mask token {mask}" if mask else f"any of {', '.join(MASKS)}"
        raise CheckpointError(
            f"{folder}: the tokenizer lacks {which}; add it, or set mask_token_id in config.json"
        )
    return vocabulary.ids[mask]


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold keys and values")
    return values


def _listed(path: Path) -> dict[str, int]:
    """The ids of a file with one token per line, as BERT has it."""
    if not path.is_file():
        return {}
    return {token: i for i, token in enumerate(path.read_text().rstrip("\n").split("\n"))}


def _model_ids(whole: dict[str, Any]) -> dict[str, int]:
    vocab = whole.get("model", {}).get("vocab", {})
    if isinstance(vocab, list):  # unigram models list tokens with their scores
        return {entry[0]: i for i, entry in enumerate(vocab)}
    return vocab


def _extra_special(settings: dict[str, Any]) -> list[str]:
    """Special tokens without a role, under either of the names that file versions use."""
    special = []
    for name in ("additional_special_tokens", "extra_special_tokens"):
        tokens = settings.get(name) or []
        special += map(_content, tokens.values() if isinstance(tokens, dict) else tokens)
    return special


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)
