"""ARC: which choice a generated text settles on."""

import functools
import re
from collections.abc import Sequence

_MOST_CHARACTERS = 20_000
"""Read of a response from each end; what it settles on does not stand in its middle."""


def parse_choice(
    response: str, labels: Sequence[str], texts: Sequence[str] | None = None
) -> str | None:
    """The label a response chooses, none if it chooses none.

    Looked for in this order: the last `\\boxed{}` label; the last "answer is X" or "answer: X"; a
    line that is a label alone; a label that begins the response, before `.`, `)`, `:` or `,`; a
    label in brackets; the choice whose text it repeats word for word. Two different labels where
    one is looked for are no choice.

    Args:
        response: Generated text.
        labels: Such as A to D, or 1 to 4.
        texts: The choices' texts, in the labels' order, for responses that name no label.
    """
    text = _without_marks(response)
    if len(text) > 2 * _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS] + "\n" + text[-_MOST_CHARACTERS:]
    statements, mentions = _patterns(tuple(labels))
    for pattern in (*statements, *mentions):
        found = list(pattern.finditer(text))
        if found:
            # A text may correct itself: its last statement counts. Mentions must agree.
            return _settled(text, found[-1:] if pattern in statements else found, labels)
    return _by_text(text, labels, texts or ())


Patterns = tuple[re.Pattern[str], ...]


@functools.lru_cache
def _patterns(labels: tuple[str, ...]) -> tuple[Patterns, Patterns]:
    """How a text states its choice, and how it mentions one, the clearest way first.

    The first group of each is the label.
    """
    one = _one_of(labels)
    # A small letter must stand apart: "the answer is a cloud" names no choice.
    label = rf"[(\[]?((?i:{one})(?=[)\].:,}}]|\s*\Z|\s*\n)|(?:{one})(?![\w'’]))"
    named = r"(?i:answer|choice|option)(?i: is|\s?:)\s{0,3}(?:\\?\(|(?i:option |choice ))?"
    statements = (rf"\\boxed\s?\{{\s?(?:\\text\{{)?\s?{label}", rf"{named}{label}")
    mentions = (
        rf"^[ \t]{{0,20}}[(\[]?({one})[)\]]?\.?[ \t]{{0,20}}$",
        rf"\A\s{{0,20}}[(\[]?({one})[)\].:,]",
        rf"[(\[]({one})[)\]]",
    )
    first, second = (
        tuple(re.compile(way, re.MULTILINE) for way in ways) for ways in (statements, mentions)
    )
    return first, second


def _one_of(labels: Sequence[str]) -> str:
    return "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))


def _settled(text: str, found: list[re.Match[str]], labels: Sequence[str]) -> str | None:
    """The label of these matches, if they agree and the text does not go on "or B"."""
    hedge = re.compile(rf"[)\]]?\s?(?:or|and|/)\s?[(\[]?(?:{_one_of(labels)})\b")
    chosen = {match[1].upper() for match in found}
    if len(chosen) > 1 or any(hedge.match(text, match.end()) for match in found):
        return None
    return next(label for label in labels if label.upper() in chosen)


def _without_marks(text: str) -> str:
    """Without Markdown's emphasis, which may stand anywhere."""
    return re.sub(r"\*+|__|`+", "", text)


def _by_text(text: str, labels: Sequence[str], texts: Sequence[str]) -> str | None:
    words = f" {_words(text)} "
    there = [
        (label, f" {_words(choice)} ")
        for label, choice in zip(labels, texts, strict=False)
        if _words(choice) and f" {_words(choice)} " in words
    ]
    # "oxygen" is also in "liquid oxygen": only the longest counts.
    outer = [a for a in there if not any(a[1] != b[1] and a[1] in b[1] for b in there)]
    return outer[0][0] if len(outer) == 1 else None


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
