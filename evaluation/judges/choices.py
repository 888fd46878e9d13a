"""ARC: the choice that a generated text settles on."""

import functools
import re
from collections.abc import Sequence

_MAX_CHARACTERS = 20_000
"""Number of characters read from each end of a response, where it states its choice."""


def parse_choice(
    response: str, labels: Sequence[str], texts: Sequence[str] | None = None
) -> str | None:
    """The label that a response chooses; None if it chooses none.

    These are searched for in order: the last `\\boxed{}` label; the last "answer is X" or "answer:
    X"; a line that consists of a label; a label that begins the response, before `.`, `)`, `:` or
    `,`; a label in brackets; the choice whose text the response repeats word for word. Two
    different labels at the same stage count as none.

    Args:
        response: Generated text.
        labels: Such as A to D, or 1 to 4.
        texts: The choices' texts, in the labels' order, for responses that name no label.
    """
    text = _without_marks(response)
    if len(text) > 2 * _MAX_CHARACTERS:
        text = text[:_MAX_CHARACTERS] + "\n" + text[-_MAX_CHARACTERS:]
    statements, mentions = _patterns(tuple(labels))
    for pattern in (*statements, *mentions):
        matches = list(pattern.finditer(text))
        if matches:
            # A text may correct itself: its last statement counts. Mentions must agree.
            return _settled(text, matches[-1:] if pattern in statements else matches, labels)
    return _by_text(text, labels, texts or ())


Patterns = tuple[re.Pattern[str], ...]


@functools.lru_cache
def _patterns(labels: tuple[str, ...]) -> tuple[Patterns, Patterns]:
    """Patterns of stating a choice, and of mentioning one, the clearest first.

    The first group of each is the label.
    """
    any_label = _alternatives(labels)
    # A small letter must stand apart: "the answer is a cloud" names no choice.
    label = rf"[(\[]?((?i:{any_label})(?=[)\].:,}}]|\s*\Z|\s*\n)|(?:{any_label})(?![\w'’]))"
    named = r"(?i:answer|choice|option)(?i: is|\s?:)\s{0,3}(?:\\?\(|(?i:option |choice ))?"
    statements = (rf"\\boxed\s?\{{\s?(?:\\text\{{)?\s?{label}", rf"{named}{label}")
    mentions = (
        rf"^[ \t]{{0,20}}[(\[]?({any_label})[)\]]?\.?[ \t]{{0,20}}$",
        rf"\A\s{{0,20}}[(\[]?({any_label})[)\].:,]",
        rf"[(\[]({any_label})[)\]]",
    )
    first, second = (
        tuple(re.compile(x, re.MULTILINE) for x in patterns) for patterns in (statements, mentions)
    )
    return first, second


def _alternatives(labels: Sequence[str]) -> str:
    return "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True))


def _settled(text: str, matches: list[re.Match[str]], labels: Sequence[str]) -> str | None:
    """The label of these matches, if they agree and the text does not continue with "or B"."""
    hedge = re.compile(rf"[)\]]?\s?(?:or|and|/)\s?[(\[]?(?:{_alternatives(labels)})\b")
    chosen = {match[1].upper() for match in matches}
    if len(chosen) > 1 or any(hedge.match(text, match.end()) for match in matches):
        return None
    return next(label for label in labels if label.upper() in chosen)


def _without_marks(text: str) -> str:
    """The text without Markdown emphasis, which may occur anywhere."""
    return re.sub(r"\*+|__|`+", "", text)


def _by_text(text: str, labels: Sequence[str], texts: Sequence[str]) -> str | None:
    words = f" {_words(text)} "
    repeated = [
        (label, f" {_words(choice)} ")
        for label, choice in zip(labels, texts, strict=False)
        if _words(choice) and f" {_words(choice)} " in words
    ]
    # "oxygen" is also in "liquid oxygen": only the longest counts.
    longest = [a for a in repeated if not any(a[1] != b[1] and a[1] in b[1] for b in repeated)]
    return longest[0][0] if len(longest) == 1 else None


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
