"""Prompts and responses from anything `datasets` loads: JSONL, JSON, CSV, Parquet, or a hub name;
and from text benchmarks.

The prompt is the condition and stays; the response is editable.
"""

import functools
import hashlib
import re
import string
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from remask.models.text.prompts import TextTokenizer, load_tokenizer
from remask.pipeline.benchmarks.reading import load_from_hub
from remask.pipeline.benchmarks.training import Benchmark, TrainingSet, read_fields
from remask.pipeline.format.rows import Examples, Vocabulary, hash_share, pad
from remask.pipeline.runtime.jsonl import first_fault
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute_if_here, file_hash

FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Prompt and response by template, tokenised, too long ones left out and counted."""

    kind: Literal["text"] = "text"
    data: str = field(metadata=PLACE)
    """A file (.jsonl, .json, .csv, .parquet) or the name of a data set on the hub."""
    tokenizer: str = field(metadata=PLACE)
    """Folder or hub name of a Hugging Face tokenizer."""
    benchmark: Benchmark | None = None
    """Read the data as this benchmark, whose records have a `prompt` and a `response` as its suite
    asks and shows them, by `chat` or not. Of MBPP only the part that its suite does not test is
    read."""
    subjects: tuple[str, ...] = ()
    """Of MATH, those to take; all when empty."""
    split_seed: int = 0
    """Of MBPP's division into parts, as its suite has it."""
    subset: str = "train"
    """Which split of the data set to read."""
    prompt: str = "{prompt}"
    """Template over a record's fields."""
    response: str = "{response}"
    """Template over a record's fields."""
    chat: bool = False
    """Ask by the tokenizer's chat template; the response ends as an assistant's turn does."""
    max_length: int = 1024
    """Tokens of prompt and response together; longer examples are left out."""
    held_out_share: float = 0.05
    """Share of the records, by a hash of their prompt, that is kept from training."""
    mask_token: str | None = None
    """The mask token, where the tokenizer does not name one."""
    append_eos: bool = True
    """End the response with the tokenizer's end token; in a chat whose turns end with a token of
    their own, only if it has one."""
    eos_bucket: int | None = None
    """Go on with end tokens to a multiple of this many tokens in all, at most `max_length`. They
    are part of the response, as LLaDA's training has it: so it learns how long answers are."""

    def __post_init__(self) -> None:
        if self.max_length < 2:
            raise ValueError(f"max_length must be at least 2, got {self.max_length}")
        if not 0 <= self.held_out_share < 1:
            raise ValueError(f"held_out_share must lie in [0, 1), got {self.held_out_share}")
        if self.eos_bucket is not None and (self.eos_bucket < 1 or not self.append_eos):
            raise ValueError(
                f"eos_bucket must be at least 1 and needs append_eos, got {self.eos_bucket}"
            )
        if self.subjects and self.benchmark != "math":
            raise ValueError(f"subjects are MATH's: set benchmark: math, got {self.benchmark}")

    @property
    def _templates(self) -> tuple[str, str]:
        return self.prompt, self.response

    def tokenizer_hash(self) -> str:
        return self._tokenizer().hash

    def with_absolute_paths(self) -> "TextSource":
        """Paths as this machine names them; hub names as they are."""
        data, tokenizer = absolute_if_here(self.data), absolute_if_here(self.tokenizer)
        return replace(self, data=data, tokenizer=tokenizer)

    def data_hash(self) -> str:
        """Of a benchmark's records and templates, the file's bytes, or what `datasets` knows the
        data set by."""
        if self.benchmark:
            known = repr((self._templates, self._records()))
            return hashlib.sha256(known.encode()).hexdigest()[:16]
        if Path(self.data).suffix in FORMATS:
            return file_hash(self.data)
        return self._records()._fingerprint

    def vocabulary(self) -> Vocabulary:
        tokenizer = self._tokenizer()
        known = set(tokenizer.inner.get_vocab().values())
        size = max(known) + 1
        added = tokenizer.inner.added_tokens_decoder
        special = {*tokenizer.inner.all_special_ids, *(i for i, x in added.items() if x.special)}
        excluded = special | (set(range(size)) - known)
        return Vocabulary(size, tokenizer.mask_id, tuple(sorted(excluded - {tokenizer.mask_id})))

    def num_records(self) -> dict[str, int]:
        """Records to look through for each split; one in `held_out_share` is held out."""
        count = len(self._records())
        return {"train": count} | ({"held_out": count} if self.held_out_share else {})

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Those of the records first .. first+count-1 that belong to a split and fit."""
        vocabulary = self.vocabulary()
        records = self._records()
        ids, prompts, responses, skipped = [], [], [], 0
        for number in range(first, min(first + count, len(records))):
            record = self._record(number)
            prompt, response = self._texts(record, number)
            # Records of one prompt stay together, where there is a prompt to tell them by.
            key = prompt if _fields(self._templates[0]) else response
            is_held_out = hash_share(key.encode()) < self.held_out_share
            if is_held_out != (split == "held_out"):
                continue
            encoded = None
            if all(record[n] is not None for n in _fields("".join(self._templates))):
                encoded = self._encode(prompt, response)
            if encoded is None:
                skipped += 1
                continue
            ids.append(f"{Path(self.data).stem}-{self.subset}-{number:09d}")
            prompts.append(len(encoded[0]))
            responses.append(np.array(encoded[0] + encoded[1]))
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

    def _tokenizer(self) -> TextTokenizer:
        tokenizer = load_tokenizer(self.tokenizer, self.mask_token)
        if self.append_eos and tokenizer.eos_id is None:
            is_ended = self.chat and tokenizer.turn_end and not self.eos_bucket
            if not is_ended:
                raise ValueError(
                    f"tokenizer {self.tokenizer} has no end token, so no response would end; name "
                    "its eos_token in tokenizer_config.json, or set append_eos: false"
                )
        return tokenizer

    def _records(self) -> Any:
        if self.benchmark is None:
            return _load(self.data, self.subset)
        chosen = TrainingSet(
            data=self.data,
            split=self.subset,
            subjects=self.subjects,
            split_seed=self.split_seed,
        )
        return read_fields(self.benchmark, chosen, chat=self.chat)

    def _record(self, number: int) -> dict[str, Any]:
        try:
            return self._records()[number]
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.data}: record {number} is not UTF-8: {error}") from error

    def _texts(self, record: dict[str, Any], number: int) -> tuple[str, str]:
        try:
            prompt, response = (template.format(**record) for template in self._templates)
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{self.data}: row {number + 1} does not fit a template ({error}); it has the "
                f"fields {sorted(record)}"
            ) from error
        return prompt, response

    def _encode(self, prompt: str, response: str) -> tuple[list[int], list[int]] | None:
        """Ids of both; none where there is nothing to answer, no room for it, or MASK in either."""
        tokenizer = self._tokenizer()
        mask = tokenizer.inner.convert_ids_to_tokens(tokenizer.mask_id)
        if mask in prompt or mask in response:
            return None
        asked = tokenizer.encode_prompt(prompt, chat=self.chat)
        answer = tokenizer.encode(response) + (tokenizer.turn_end if self.chat else [])
        if self.append_eos and tokenizer.eos_id is not None:
            answer += [tokenizer.eos_id]
            length = len(asked) + len(answer)
            full = -(-length // (self.eos_bucket or 1)) * (self.eos_bucket or 1)
            answer += [tokenizer.eos_id] * (min(full, self.max_length) - length)
        return (asked, answer) if answer and len(asked + answer) <= self.max_length else None


def _fields(template: str) -> list[str]:
    """The record fields a template names."""
    parts = [name for _, name, _, _ in string.Formatter().parse(template) if name]
    return [re.split(r"[.\[]", part)[0] for part in parts]


@functools.lru_cache(maxsize=2)
def _load(data: str, subset: str) -> Any:
    import datasets  # slow to import, and only text needs it
    from datasets.exceptions import DatasetGenerationError

    suffix = Path(data).suffix
    if suffix not in FORMATS:
        return load_from_hub(data, subset)
    try:
        return datasets.load_dataset(FORMATS[suffix], data_files={subset: data}, split=subset)
    except (OSError, ValueError, RecursionError, StopIteration, DatasetGenerationError) as error:
        reason = first_fault(data) or (str(error) or "it is empty").splitlines()[0]
        raise ValueError(f"cannot load {data}: {reason}") from error
