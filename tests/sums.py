"""Sums of two numbers as a user's own text, and two tokenizers without MASK and end token."""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PROMPT, RESPONSE = "Q: {question}\nA: ", "{answer}"
SIGNS = "0123456789+="


def make_sums(count: int) -> list[dict[str, str]]:
    """Different sums of numbers of two digits."""
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(0).shuffle(pairs)
    return [{"question": f"{a} + {b} =", "answer": str(a + b)} for a, b in pairs[:count]]


def write_sums(path: Path, count: int = 300) -> str:
    """Sums as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in make_sums(count)))
    return str(path)


def write_byte_tokenizer(folder: Path) -> str:
    """Byte-level BPE without merges or special tokens: 256 ids."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=inner).save_pretrained(folder)
    return str(folder)


def write_word_tokenizer(folder: Path, **roles: str) -> str:
    """Digits and signs as words. It writes spaces between them and has [UNK] besides `roles`, such
    as mask_token="[MASK]"."""
    words = ["[UNK]", *roles.values(), *SIGNS]
    inner = Tokenizer(models.WordLevel({x: i for i, x in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", **roles)
    tokenizer.save_pretrained(folder)
    return str(folder)
