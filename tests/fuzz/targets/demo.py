"""Bodies of `POST /revise`, answered by the demo's application with models of every kind."""

import asyncio
import base64
import functools
import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import httpx
from PIL import Image

from remask.infra.demo.app import make_app
from remask.infra.demo.guard import Guard
from remask.infra.demo.line import Line
from remask.infra.demo.offers import Offers
from remask.infra.reviser import Reviser, open_reviser
from tests.fuzz.case import Case, Target, ViolationError
from tests.fuzz.mutate import mutate_bytes, mutate_value, to_json
from tests.pipeline.pictures import png
from tests.revisers import DRAFT, PROMPT, write_boards, write_edits, write_sums

FILE = "body-of-fuzz.json"
OPTIONS = {"policy": "revision", "history": False, "margin": 0.5, "max_steps": 2, "seed": 1}


@functools.cache
def opened() -> tuple[dict[str, Reviser], bytes]:
    """Loaded models by name, and a PNG file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shapes, _, (pair, *_) = write_edits(folder)
        folders = {
            "boards": write_boards(folder / "boards"),
            "sums": write_sums(folder / "sums"),
            "shapes": shapes,
        }
        revisers = {name: open_reviser(path) for name, path in folders.items()}
        return revisers, png(Image.fromarray(pair.source))


def starts(picture: bytes) -> tuple[dict[str, Any], ...]:
    """Sound requests without options."""
    return (
        {"kind": "sudoku", "board": "4132331414233240", "editable": "1" * 16},
        {"kind": "text", "prompt": PROMPT, "draft": DRAFT, "length": 12},
        {
            "kind": "image_edit",
            "picture": base64.b64encode(picture).decode(),
            "instruction": "make the red square blue",
            "checkpoint": "shapes",
        },
    )


def make(rng: Random) -> Case:
    """A request with another value, picture or bytes, or a sound one."""
    _, picture = opened()
    notes: list[str] = []
    is_damaged = rng.random() < 0.15
    if is_damaged:
        picture, notes = mutate_bytes(picture, rng)
    request = {**rng.choice(starts(picture)[2 if is_damaged else 0 :]), "options": OPTIONS}
    body = to_json(request)
    change = rng.random()
    if not is_damaged and change < 0.7:
        changed, notes = mutate_value(request, rng)
        body = to_json(changed)
    elif not is_damaged and change < 0.85:
        body, notes = mutate_bytes(body, rng)
    return Case({FILE: body}, notes=tuple(notes))


def run(case: Case) -> None:
    answer = asyncio.run(_ask(Path(FILE).read_bytes()))
    values = json.loads(answer.content)
    if answer.status_code == 200:
        if "steps" not in values:
            raise ViolationError("an answer is no record")
    elif not 400 <= answer.status_code < 500 or list(values) != ["error"]:
        raise ViolationError(f"status {answer.status_code}: {answer.text[:300]}")
    else:
        raise ValueError(values["error"])


async def _ask(body: bytes) -> httpx.Response:
    line = Line()
    app = Guard(make_app(Offers(opened()[0]), [], line), "127.0.0.1")
    transport = httpx.ASGITransport(app)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            headers = {"content-type": "application/json"}
            return await client.post("/revise", content=body, headers=headers)
    finally:
        line.wait()


TARGETS = (Target("demo", make, run, share=0.3),)
