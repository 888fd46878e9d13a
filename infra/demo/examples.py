"""Starts that the page offers, as requests that the loaded models answer.

The pictures in `pictures/` are held-out scenes of `remask build emoji_rm`. Graphics: Twemoji, ©
Twitter, Inc and other contributors, CC BY 4.0.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remask.infra.demo.offers import Model
from remask.infra.reviser import SHIPPED


@dataclass(frozen=True)
class Example:
    """A request with its title."""

    title: str
    request: dict[str, Any]


PUZZLE = "304007060187056300695040008069324801708005432400718956240801000070560243956400087"
BOARDS = {
    "A board with 14 wrong digits": {
        "board": "314698765928758943576134281576382976697541329672964514165423897343479151789615432"
    },
    "A board with wrong digits and blanks": {
        "board": "908260154541823726072546893415939263300073060766415938823726410267094389054039672"
    },
    "A puzzle with 30 blanks": {
        "board": PUZZLE,
        "editable": "".join("1" if digit == "0" else "0" for digit in PUZZLE),
    },
    "A board from nothing": {"board": "0" * 81},
}
SMALL_BOARDS = {
    "A small board with 2 wrong digits": {"board": "4132331414233243"},
    "A small board from nothing": {"board": "0" * 16},
}
SUMS = {
    "Running sums with a slip": {"prompt": "8+3-4+2:", "draft": "8+3=9;9-4=6;6+2=8"},
    "Running sums with two slips": {
        "prompt": "7-4+3-1+2:",
        "draft": "7-4=3;3+3=7;7-1=6;6+2=9",
    },
    "Running sums from nothing": {"prompt": "6+2-3-1+4:"},
}
PICTURES = {
    "A loudspeaker to recolour": ("loudspeaker.png", "make the loudspeaker blue"),
    "A microbe to recolour": ("microbe.png", "make the microbe purple"),
    "An artist to remove": ("artist.png", "remove the artist"),
    "A place for a mouse": ("cop.png", "add a mouse at the bottom left"),
}
FOLDER = Path(__file__).parent / "pictures"


def find_examples(models: Iterable[Model]) -> list[Example]:
    """The examples that some model of a list can answer."""
    found: dict[str, Example] = {}
    for model in models:
        for title, start in _starts(model).items():
            request = {"kind": model.kind, "checkpoint": model.name, **start}
            found.setdefault(title, Example(title, request))
    return list(found.values())


def _starts(model: Model) -> dict[str, dict[str, Any]]:
    """Starts by title; only the packaged models of text and pictures are known to take any."""
    if model.kind == "sudoku":
        return BOARDS if model.columns == 9 else SMALL_BOARDS
    if model.name != SHIPPED[model.kind]:
        return {}
    return SUMS if model.kind == "text" else {t: _edit(*edit) for t, edit in PICTURES.items()}


def _edit(file: str, instruction: str) -> dict[str, Any]:
    picture = base64.b64encode((FOLDER / file).read_bytes()).decode()
    return {"picture": picture, "instruction": instruction}
