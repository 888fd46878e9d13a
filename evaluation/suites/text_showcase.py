"""Answers in text for the report: which ones are shown, with every token on the way."""

from collections.abc import Sequence
from typing import Any

from remask.evaluation.decode.text_path import TextPath
from remask.evaluation.player import PlayerSample, TextAnswer
from remask.models.text.prompts import TextTokenizer

SHARED, SHOWN = 2, 8
"""Number of samples that all runs show, the first ones, and of all that a run shows."""
MASK = "·"
"""How MASK is written; its number is 0."""


def choose(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows to show: the first, which other runs show too, then right and wrong ones with the
    most re-masks. Answers that revision put right come before others that are right."""
    shared, rest = list(rows[:SHARED]), sorted(rows[SHARED:], key=lambda row: -row["remasked"])
    half = (SHOWN - SHARED) // 2
    right = sorted((row for row in rest if row["is_right"]), key=lambda row: not is_repaired(row))
    return [*shared, *right[:half], *[row for row in rest if not row["is_right"]][:half]]


def is_repaired(row: dict[str, Any]) -> bool:
    """Whether an answer is right that would be wrong as it was first written."""
    return row["is_right"] and not row["right_as_written"]


def show_answer(row: dict[str, Any], codec: TextTokenizer, prompt: str) -> dict[str, Any]:
    """A decoded answer as plain values for `showcase.json`.

    Tokens are numbered by their first appearance, MASK with 0. What follows the first end token of
    the final answer is left out.
    """
    path, ends = TextPath.unpack(row["path"]), {*codec.end_ids}
    final = path.states[-1]
    length = next((i + 1 for i, token in enumerate(final) if token in ends), len(final))
    states = [state[:length] for state in path.states]
    numbers = {codec.mask_id: 0}
    for state in states:
        for token in state:
            numbers.setdefault(token, len(numbers))
    names = ("sample_id", "response", "answer", "is_right", "verdict")
    return {name: row[name] for name in names} | {
        "prompt": prompt,
        "note": note(row["is_right"], is_repaired(row)),
        "symbols": [MASK, *codec.pieces(list(numbers)[1:])],
        "states": [[numbers[token] for token in state] for state in states],
        "steps": path.steps,
    }


def note(is_right: bool, repaired: bool) -> str:
    """A few words on how an answer ended."""
    return "wrong" if not is_right else "put right by revision" if repaired else "right"


def read_answer(sample: dict[str, Any]) -> PlayerSample | None:
    """A sample of `showcase.json` as the report takes it; None if it has no prompt, as those of
    earlier versions.

    Raises:
        KeyError, TypeError, ValueError: The sample is neither.
    """
    if "prompt" not in sample:
        return None
    verdict, answer = sample.get("verdict") or "", sample.get("answer")
    return PlayerSample(
        sample_id=str(sample["sample_id"]),
        note=str(sample.get("note") or ""),
        states=sample.get("states", []),
        symbols=sample.get("symbols"),
        steps=sample.get("steps"),
        answer=TextAnswer(
            prompt=sample["prompt"],
            response=sample["response"],
            found="" if answer is None else str(answer),
            expected=str(sample.get("expected") or ""),
            is_right=sample["is_right"],
            detail=str(verdict),
        ),
    )
