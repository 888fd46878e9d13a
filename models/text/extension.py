"""Tokens that a tokenizer lacks: MASK, and an end of text, added after its last id.

Mask diffusion needs both, and most published tokenizers lack MASK. The ids follow from the
tokenizer alone, so that every stage adds the same, and a tokenizer that is saved with them is read
back with the same ids.
"""

from typing import Any

ADDED_MASK, ADDED_END = "<|mask|>", "<|endoftext|>"
USUAL_ENDS = (ADDED_END, "</s>", "<eos>", "[EOS]", "<|end_of_text|>")
"""Usual end tokens, for tokenizers that do not say which of their tokens is the end."""


def add_mask(inner: Any, name: str) -> None:
    """Give a tokenizer of transformers a mask token; its id is one more than the last.

    Args:
        inner: The tokenizer.
        name: Its name in errors.

    Raises:
        ValueError: Its ids have gaps.
    """
    _add(inner, name, "mask_token", ADDED_MASK)


def add_end(inner: Any, name: str) -> None:
    """Give a tokenizer without an end token one: the first of `USUAL_ENDS` that it has, or a new
    one. Arguments and errors are those of `add_mask`."""
    known = inner.get_vocab()
    token = next((x for x in USUAL_ENDS if x in known), ADDED_END)
    _add(inner, name, "eos_token", token)


def _add(inner: Any, name: str, role: str, token: str) -> None:
    before = inner.get_vocab()
    inner.add_special_tokens({role: token})
    added = inner.get_vocab().get(token)
    if token not in before and added != max(before.values(), default=-1) + 1:
        raise ValueError(
            f"tokenizer {name} numbers its {len(before)} tokens up to {max(before.values())}, with "
            f"gaps, so {token} cannot be added to it; add it yourself"
        )
