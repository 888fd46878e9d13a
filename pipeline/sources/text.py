"""Prompts and responses from text benchmarks and from whatever `datasets` loads: JSONL, JSON, CSV,
Parquet, or a data set on the hub.

The prompt is the condition and stays fixed; the response is editable.
"""

import contextlib
import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from remask.models.checkpoints.hub_name import data_stem
from remask.models.ranges import Range, check_fields
from remask.models.text.prompts import TextTokenizer, load_tokenizer
from remask.pipeline.benchmarks.training import (
    Benchmark,
    TrainingSet,
    read_chosen,
    read_fields,
)
from remask.pipeline.checkers import Checker
from remask.pipeline.format.examples import Examples, Vocabulary, hash_share, pad
from remask.pipeline.runtime.data_files import load_files, load_from_hub, local_files
from remask.pipeline.runtime.places import PLACE
from remask.pipeline.runtime.storage import absolute_if_here, file_hash
from remask.pipeline.sources.templates import fill, template_fields
from remask.pipeline.sources.text_checker import CHECKED, BenchmarkChecker


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """Prompts and responses by template, tokenised; those that are too long are left out."""

    kind: Literal["text"] = "text"
    data: str = field(metadata=PLACE)
    """A file (.jsonl, .json, .csv, .parquet) or a data set on the hub: `hf:owner/name@revision`, or
    a name that `datasets` loads."""
    tokenizer: str = field(metadata=PLACE)
    """Folder of a Hugging Face tokenizer, or its hub name: `hf:owner/name@revision`. One without a
    mask or end token gets it, with the next free id (`models/text/extension.py`)."""
    benchmark: Benchmark | None = None
    """Read the data as this benchmark. Its records have the fields `prompt` and `response` in the
    wording of the benchmark's suite, with or without `chat`. From MBPP only the part that the suite
    does not test is read."""
    subjects: tuple[str, ...] = ()
    """Subjects of MATH to read; defaults to all."""
    split_seed: int = 0
    """Seed of MBPP's division into parts; must equal the seed of its suite."""
    subset: str = "train"
    """Name of the data set's split to read."""
    prompt: str = "{prompt}"
    """Template over a record's fields."""
    response: str = "{response}"
    """Template over a record's fields."""
    chat: bool = False
    """Apply the tokenizer's chat template; the response ends like an assistant's turn."""
    max_length: Annotated[int, Range("[2, inf)")] = 1024
    """Tokens of prompt and response together; longer examples are left out."""
    held_out_share: Annotated[float, Range("[0, 1)")] = 0.05
    """Share of the records, by a hash of their prompt, that is held out of training."""
    mask_token: str | None = None
    """The mask token; defaults to the one that the tokenizer names."""
    append_eos: bool = True
    """End the response with the tokenizer's end token. A tokenizer without one gets one, except in
    a chat whose turns end with a token of their own."""
    eos_bucket: Annotated[int | None, Range("[1, inf)")] = None
    """Pad the row with end tokens to a multiple of this many tokens, at most to `max_length`. They
    are part of the response, as in LLaDA's training, so that the model learns how long answers are.
    Defaults to no padding."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.eos_bucket is not None and not self.append_eos:
            raise ValueError(f"eos_bucket {self.eos_bucket} needs append_eos: true")
        if self.subjects and self.benchmark != "math":
            raise ValueError(f"subjects are MATH's: set benchmark: math, got {self.benchmark}")

    @property
    def _templates(self) -> tuple[str, str]:
        return self.prompt, self.response

    def own_proposals(self) -> tuple[str, ...]:
        return ()

    def tokenizer_hash(self) -> str:
        return self.read_tokenizer().hash

    def with_absolute_paths(self) -> "TextSource":
        """The same source with absolute paths; hub names stay."""
        data, tokenizer = absolute_if_here(self.data, "dataset"), absolute_if_here(self.tokenizer)
        return replace(self, data=data, tokenizer=tokenizer)

    def data_hash(self) -> str:
        """Hash of a benchmark's records and templates, or of the files' bytes; for data sets that
        `datasets` finds on the hub, their fingerprint there."""
        if self.benchmark:
            content = repr((self._templates, self._records()))
            return hashlib.sha256(content.encode()).hexdigest()[:16]
        files = local_files(self.data, self.subset)
        return "-".join(map(file_hash, files)) if files else self._records()._fingerprint

    def vocabulary(self) -> Vocabulary:
        tokenizer = self.read_tokenizer()
        known = set(tokenizer.inner.get_vocab().values())
        size = max(known) + 1
        added = tokenizer.inner.added_tokens_decoder
        special = {*tokenizer.inner.all_special_ids, *(i for i, x in added.items() if x.special)}
        excluded = special | (set(range(size)) - known)
        return Vocabulary(size, tokenizer.mask_id, tuple(sorted(excluded - {tokenizer.mask_id})))

    def checker(self) -> Checker | None:
        """Judges responses as the benchmark's suite does; None without such a benchmark."""
        if self.benchmark not in CHECKED:
            return None
        return BenchmarkChecker(self.benchmark, self._benchmark_record, self.read_tokenizer)

    def num_records(self) -> dict[str, int]:
        """Records to look through for each split; both splits look through all of them."""
        count = len(self._records())
        return {"train": count} | ({"held_out": count} if self.held_out_share else {})

    def examples(self, split: str, first: int, count: int, rng: np.random.Generator) -> Examples:
        """Those of the records first .. first+count-1 that belong to a split and fit."""
        vocabulary = self.vocabulary()
        records = self._records()
        ids, prompts, rows, skipped = [], [], [], 0
        for number in range(first, min(first + count, len(records))):
            pair = self.read_pair(number)
            if pair.is_held_out != (split == "held_out"):
                continue
            encoded = self.encode_pair(pair)
            if encoded is None:
                skipped += 1
                continue
            ids.append(pair.example_id)
            prompts.append(len(encoded[0]))
            rows.append(np.array(encoded[0] + encoded[1]))
        target, lengths = pad(rows, vocabulary.dtype)
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

    def read_pair(self, number: int) -> "TextPair":
        """A record by its number, as prompt and response."""
        try:
            record = self._records()[number]
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.data}: record {number} is not UTF-8: {error}") from error
        prompt, response = (fill(x, record, self.data, number) for x in self._templates)
        # Records with the same prompt share a split. If the prompt is constant, the response
        # decides.
        key = prompt if template_fields(self._templates[0]) else response
        try:
            share = hash_share(key.encode())
        except UnicodeEncodeError as error:
            raise ValueError(f"{self.data}: row {number + 1} is no valid text: {error}") from error
        names = template_fields("".join(self._templates))
        return TextPair(
            example_id=f"{data_stem(self.data)}-{self.subset}-{number:09d}",  # see `_number`
            record=record,
            prompt=prompt,
            response=response,
            is_held_out=share < self.held_out_share,
            is_complete=all(record[name] is not None for name in names),
        )

    def read_tokenizer(self) -> TextTokenizer:
        """The tokenizer, with a mask token and, if responses end with it, an end token."""
        tokenizer = load_tokenizer(self.tokenizer, self.mask_token, "mask")
        if not self.append_eos or tokenizer.eos_id is not None:
            return tokenizer
        is_ended = self.chat and tokenizer.turn_end and not self.eos_bucket
        if is_ended:
            return tokenizer
        return load_tokenizer(self.tokenizer, self.mask_token, "mask and end")

    def _records(self) -> Any:
        if self.benchmark is None:
            return _load(self.data, self.subset)
        return read_fields(self.benchmark, self._training_set, chat=self.chat)

    def _benchmark_record(self, example_id: str) -> Any:
        """The benchmark's record that an example was made from."""
        assert self.benchmark is not None
        return read_chosen(self.benchmark, self._training_set)[_number(example_id)]

    @property
    def _training_set(self) -> TrainingSet:
        return TrainingSet(
            data=self.data,
            split=self.subset,
            subjects=self.subjects,
            split_seed=self.split_seed,
        )

    def encode_pair(self, pair: "TextPair") -> tuple[list[int], list[int]] | None:
        """Ids of prompt and response; None if a field is missing, the response is empty, the row is
        too long, or MASK occurs in either."""
        tokenizer, prompt, response = self.read_tokenizer(), pair.prompt, pair.response
        if not pair.is_complete:
            return None
        mask = tokenizer.inner.convert_ids_to_tokens(tokenizer.mask_id)
        if mask in prompt or mask in response:
            return None
        prompt_ids = tokenizer.encode_prompt(prompt, chat=self.chat)
        answer = tokenizer.encode(response) + (tokenizer.turn_end if self.chat else [])
        if self.append_eos and tokenizer.eos_id is not None:
            answer += [tokenizer.eos_id]
            length = len(prompt_ids) + len(answer)
            full = -(-length // (self.eos_bucket or 1)) * (self.eos_bucket or 1)
            answer += [tokenizer.eos_id] * (min(full, self.max_length) - length)
        fits = len(prompt_ids + answer) <= self.max_length
        return (prompt_ids, answer) if answer and fits else None


@dataclass(frozen=True, kw_only=True)
class TextPair:
    """A record, filled into the templates."""

    example_id: str
    record: Mapping[str, Any]
    prompt: str
    response: str
    is_held_out: bool
    is_complete: bool
    """Whether all fields of the templates have a value."""


def _number(example_id: str) -> int:
    """The number of an example's record."""
    return int(example_id.rpartition("-")[2])


def _load(data: str, subset: str) -> Any:
    path = Path(data)
    with contextlib.suppress(OSError, ValueError):  # of names that are no paths
        about = path.stat()
        return _load_once(data, subset, (str(path.absolute()), about.st_mtime_ns, about.st_size))
    return _load_once(data, subset, None)


@functools.lru_cache(maxsize=2)
def _load_once(data: str, subset: str, version: tuple[str, int, int] | None) -> Any:
    """The records; `version` tells the files of one name apart."""
    files = local_files(data, subset)
    return load_files(files, subset, data) if files else load_from_hub(data, subset)
