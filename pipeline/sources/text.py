"""Prompts and responses from anything `datasets` loads: JSONL, JSON, CSV, Parquet, or a hub name.

The prompt is the condition and stays; the response is editable.
"""

import functools
import hashlib
import re
import string
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.rows import Examples, Vocabulary, hash_share, pad
from pipeline.storage import absolute, file_hash

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Prompt and response by template, tokenised, too long ones left out and counted."""

    kind: Literal["text"] = "text"
    data: str
    """A file (.jsonl, .json, .csv, .parquet) or the name of a data set on the hub."""
    tokenizer: str
    """Folder or hub name of a Hugging Face tokenizer."""
    subset: str = "train"
    """Which split of the data set to read."""
    prompt: str = "{prompt}"
    """Template over a record's fields."""
    response: str = "{response}"
    max_length: int = 1024
    """Tokens of prompt and response together; longer examples are left out."""
    held_out_share: float = 0.05
    """Share of the records, by a hash of their prompt, that is kept from training."""
    mask_token: str | None = None
    """The mask token, where the tokenizer does not name one."""
    append_eos: bool = True
    """End the response with the tokenizer's end token, if it has one."""

    def __post_init__(self) -> None:
        if self.max_length < 2:
            raise ValueError(f"max_length must be at least 2, got {self.max_length}")
        if not 0 <= self.held_out_share < 1:
            raise ValueError(f"held_out_share must lie in [0, 1), got {self.held_out_share}")

    def tokenizer_hash(self) -> str:
        tokenizer = _tokenizer(self.tokenizer)
        parts = [tokenizer.backend_tokenizer.to_str(), repr(tokenizer.special_tokens_map)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def with_absolute_paths(self) -> "TextSource":
        """Paths as this machine names them; hub names as they are."""
        here = {
            n: getattr(self, n) for n in ("data", "tokenizer") if Path(getattr(self, n)).exists()
        }
        return replace(self, **{name: absolute(path) for name, path in here.items()})

    def data_hash(self) -> str:
        """Of the file's bytes, or what `datasets` knows the data set by."""
        if Path(self.data).suffix in FORMATS:
            return file_hash(self.data)
        return _records(self.data, self.subset)._fingerprint

    def vocabulary(self) -> Vocabulary:
        tokenizer = _tokenizer(self.tokenizer)
        mask_id = tokenizer.mask_token_id
        if self.mask_token is not None:
            mask_id = tokenizer.get_vocab().get(self.mask_token)
        if mask_id is None:
            raise ValueError(
                f"tokenizer {self.tokenizer} has no mask token {self.mask_token or ''}; name one "
                "of its tokens as source.mask_token"
            )
        known = set(tokenizer.get_vocab().values())
        size = max(known) + 1
        unused = set(range(size)) - known
        excluded = sorted((set(tokenizer.all_special_ids) | unused) - {mask_id})
        return Vocabulary(size, mask_id, tuple(excluded))

    def num_records(self) -> dict[str, int]:
        """Records to look through for each split; one in `held_out_share` is held out."""
        count = len(_records(self.data, self.subset))
        return {"train": count} | ({"held_out": count} if self.held_out_share else {})

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Those of the records first .. first+count-1 that belong to a split and fit."""
        vocabulary = self.vocabulary()
        records = _records(self.data, self.subset)
        ids, prompts, responses, skipped = [], [], [], 0
        for number in range(first, min(first + count, len(records))):
            prompt, response = self._texts(records[number], number)
            # Records of one prompt stay together, where there is a prompt to tell them by.
            key = prompt if _fields(self.prompt) else response
            is_held_out = hash_share(key.encode()) < self.held_out_share
            if is_held_out != (split == "held_out"):
                continue
            if any(records[number][n] is None for n in _fields(self.prompt + self.response)):
                skipped += 1
                continue
            prompt_ids, response_ids = self._encode(prompt, response)
            tokens = prompt_ids + response_ids
            if len(tokens) > self.max_length or not response_ids or vocabulary.mask_id in tokens:
                skipped += 1
                continue
            ids.append(f"{Path(self.data).stem}-{self.subset}-{number:09d}")
            prompts.append(len(prompt_ids))
            responses.append(np.array(tokens))
        target, lengths = pad(responses, vocabulary.dtype)
        prompt_lengths = np.array(prompts, np.int32)
        at = np.arange(target.shape[1])
        return Examples(
            example_ids=ids,
            target=target,
            editable=(at >= prompt_lengths[:, None]) & (at < lengths[:, None]),
            lengths=lengths,
            prompt_lengths=prompt_lengths,
            vocabulary=vocabulary,
            num_skipped=skipped,
        )

    def _texts(self, record: dict[str, Any], number: int) -> tuple[str, str]:
        try:
            return self.prompt.format(**record), self.response.format(**record)
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{self.data}: record {number} does not fit a template ({error}); it has the "
                f"fields {sorted(record)}"
            ) from error

    def _encode(self, prompt: str, response: str) -> tuple[list[int], list[int]]:
        tokenizer = _tokenizer(self.tokenizer)
        start = [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []
        has_end = self.append_eos and tokenizer.eos_token_id is not None
        end = [tokenizer.eos_token_id] if has_end else []
        prompt_ids, response_ids = (
            tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, response)
        )
        return start + prompt_ids, response_ids + end


def _fields(template: str) -> list[str]:
    """The record fields a template names."""
    parts = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    return [re.split(r"[.\[]", part)[0] for part in parts]


@functools.lru_cache(maxsize=2)
def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer  # slow to import, and only text needs it

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"cannot load tokenizer {name}: {reason}") from error


@functools.lru_cache(maxsize=2)
def _records(data: str, subset: str) -> Any:
    import datasets  # slow to import, and only text needs it
    from datasets.exceptions import DatasetGenerationError

    suffix = Path(data).suffix
    try:
        if suffix in FORMATS:
            files = {subset: data}
            return datasets.load_dataset(FORMATS[suffix], data_files=files, split=subset)
        return datasets.load_dataset(data, split=subset)
    except (OSError, ValueError, StopIteration, DatasetGenerationError) as error:
        reason = (str(error) or "it is empty").splitlines()[0]
        raise ValueError(f"cannot load {data}: {reason}") from error
