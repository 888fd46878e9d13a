"""What a file of one's own text is like: its fields, templates that fit them, lengths in tokens."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from remask.evaluation.judges.texts import find_number
from remask.pipeline.moves import Ints
from remask.pipeline.sources.templates import template_fields
from remask.pipeline.sources.text import TextPair, TextSource

ROWS_READ = 5000
"""Limit on the rows whose tokens are counted; of a larger file, rows at equal distances."""
NO_LIMIT = 1 << 30
GUESSES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("prompt", "response"), "{prompt}", "{response}"),
    (("prompt", "completion"), "{prompt}", "{completion}"),
    (("question", "answer"), "{question}\n", "{answer}"),
    (("instruction", "input", "output"), "{instruction}\n{input}\n", "{output}"),
    (("instruction", "output"), "{instruction}\n", "{output}"),
    (("instruction", "response"), "{instruction}\n", "{response}"),
    (("input", "output"), "{input}\n", "{output}"),
    (("source", "target"), "{source}\n", "{target}"),
    (("text",), "", "{text}"),
)
"""Fields that records often have, and the templates for them; the first that fits is taken."""


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """What a recipe's sizes follow from."""

    rows: int
    fields: tuple[str, ...]
    prompt: str
    response: str
    prompt_tokens: Ints
    """Of the rows that were read and can be used, [n]."""
    response_tokens: Ints
    """Of the same rows, with the end token, [n]."""
    left_out: int
    """Rows that were read and cannot be used, because a field is missing or MASK is in them."""
    vocab_size: int
    added: tuple[str, ...]
    """Tokens that the tokenizer lacks and gets."""
    unknown_share: float
    """Share of the tokens that the tokenizer does not know."""
    is_written_back: bool
    """Whether the tokenizer writes responses back as they were."""
    is_numeric: bool
    """Whether every response is a number."""
    held_out_share: float

    @property
    def tokens(self) -> Ints:
        """Of prompt and response, [n]."""
        return self.prompt_tokens + self.response_tokens

    def tokens_at(self, *quantiles: float) -> list[float]:
        """Tokens that shares of the rows have at most."""
        return np.quantile(self.tokens, quantiles).tolist()


def guess_templates(data: str, fields: Iterable[str]) -> tuple[str, str]:
    """Templates of prompt and response for records with these fields.

    Raises:
        ValueError: No known set of fields is among them; the message lists them.
    """
    known = set(fields)
    for names, prompt, response in GUESSES:
        if known.issuperset(names):
            return prompt, response
    usual = ", ".join("/".join(names) for names, _, _ in GUESSES)
    raise ValueError(
        f"{data} has the fields {sorted(known)}, and none of {usual} is among them; say which are "
        "which, as in --prompt '{title}: ' --response '{body}'"
    )


def read_facts(
    data: str, tokenizer: str, prompt: str | None = None, response: str | None = None
) -> TextFacts:
    """Read a file of text, and tokenise it.

    Args:
        data: A file or the name of a data set on the hub.
        tokenizer: Folder or hub name of a tokenizer.
        prompt: Template of the prompt. Defaults to a guess from the fields.
        response: Template of the response, which goes with `prompt`.

    Raises:
        ValueError: Something cannot be read, or no row can be used.
    """
    if (prompt is None) != (response is None):
        raise ValueError("give both --prompt and --response, or neither of them")
    # Templates without fields fit every record, so that the fields can be read first.
    blank = TextSource(data=data, tokenizer=tokenizer, prompt="", response="", max_length=NO_LIMIT)
    rows = blank.num_records()["train"]
    if not rows:
        raise ValueError(f"{data} has no rows")
    fields = tuple(blank.read_pair(0).record)
    if prompt is None or response is None:
        prompt, response = guess_templates(data, fields)
    if not template_fields(response):
        raise ValueError(f"--response names no field, got {response!r}; it has {sorted(fields)}")
    source = TextSource(
        data=data, tokenizer=tokenizer, prompt=prompt, response=response, max_length=NO_LIMIT
    )
    numbers = np.unique(np.linspace(0, rows - 1, min(rows, ROWS_READ)).astype(int)).tolist()
    pairs = [source.read_pair(number) for number in numbers]
    encoded = [(pair, ids) for pair in pairs if (ids := source.encode_pair(pair)) is not None]
    if not encoded:
        raise ValueError(
            f"no row of {data} can be used: each lacks a field, has an empty response, or holds "
            "the mask token"
        )
    codec = source.read_tokenizer()
    unknown = codec.inner.unk_token_id
    ids = np.concatenate([np.array([*x, *y]) for _, (x, y) in encoded])
    usable = [pair for pair, _ in encoded]
    return TextFacts(
        rows=rows,
        fields=fields,
        prompt=prompt,
        response=response,
        prompt_tokens=np.array([len(x) for _, (x, _) in encoded]),
        response_tokens=np.array([len(y) for _, (_, y) in encoded]),
        left_out=len(pairs) - len(encoded),
        vocab_size=source.vocabulary().size,
        added=codec.added,
        unknown_share=0.0 if unknown is None else float((ids == unknown).mean()),
        is_written_back=all(codec.decode_answer(y) == x.response for x, (_, y) in encoded[:100]),
        is_numeric=all(_is_number(pair.response) for pair in usable),
        held_out_share=choose_held_out(source, usable, rows),
    )


def choose_held_out(source: TextSource, pairs: list[TextPair], rows: int) -> float:
    """A share that holds out about a hundred rows, and at least one of those read.

    Raises:
        ValueError: No share leaves rows on both sides.
    """
    wanted = float(np.clip(100 / rows, 0.01, 0.2))
    for share in (round(x, 4) for x in (wanted, 0.3, 0.5, 0.7, 0.9)):
        trial = replace(source, held_out_share=share)
        is_held_out = [trial.read_pair(_number(pair)).is_held_out for pair in pairs]
        if any(is_held_out) and not all(is_held_out):
            return share
    raise ValueError(
        f"{source.data} has too few different prompts to hold one out: {len(pairs)} rows can be "
        "used; add rows"
    )


def _number(pair: TextPair) -> int:
    return int(pair.example_id.rpartition("-")[2])


def _is_number(text: str) -> bool:
    number = find_number(text)
    return number is not None and number[0] == text.strip()
