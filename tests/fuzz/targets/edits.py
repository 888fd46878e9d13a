"""Tables of image edits beside their pictures, as builds read them pair by pair.

A row may name any place. What lies outside the folder of the table must not be read for it.
"""

import functools
import io
import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from remask.pipeline.edits import FilePairs
from remask.pipeline.edits.images import ImageError
from tests.fuzz.bases import made
from tests.fuzz.case import Case, Files, Target, ViolationError
from tests.fuzz.mutate import few, mutate_bytes, mutate_value, to_json
from tests.fuzz.tables import rewrite
from tests.pipeline.pictures import png, write_plain

FOLDER, SECRET = "edits-of-fuzz", "outside.png"
COLOUR = (1, 2, 3)
"""Of the picture outside, and of no other."""
OUTSIDE = (f"../{SECRET}", f"x/../../{SECRET}", f"./../{SECRET}", f"Singleturn/../../{SECRET}")


@functools.cache
def edits() -> Files:
    """A table of two pairs with masks, and a picture that is none of its business."""
    files = made(lambda folder: write_plain(folder / FOLDER, sizes=((16, 16), (16, 16))))
    return files | {SECRET: png(Image.new("RGB", (16, 16), COLOUR))}


def make(rng: Random) -> Case:
    files = dict(edits())
    rows = [json.loads(line) for line in files.pop(f"{FOLDER}/edits.jsonl").splitlines()]
    notes: list[str] = []
    if rng.random() < 0.3:
        at, key = rng.randrange(len(rows)), rng.choice(("source", "target", "mask"))
        rows[at][key] = rng.choice(OUTSIDE)
        notes.append(f"{key} = {rows[at][key]}")
    name, data, more = rng.choice((_as_lines, _as_parquet))(rows, rng, bool(notes))
    files[f"{FOLDER}/{name}"] = data
    return Case(files, (), (*notes, *more), (FOLDER, SECRET))


def _as_lines(
    rows: list[dict[str, Any]], rng: Random, is_done: bool
) -> tuple[str, bytes, list[str]]:
    notes: list[str] = []
    lines = [to_json(row) for row in rows]
    if not is_done:
        changed, notes = mutate_value(rows[0], rng)
        lines[0] = to_json(changed)
    data = b"\n".join(lines)
    if not is_done and rng.random() < 0.2:
        data, notes = mutate_bytes(data, rng)
    return "edits.jsonl", data, notes


def _as_parquet(
    rows: list[dict[str, Any]], rng: Random, is_done: bool
) -> tuple[str, bytes, list[str]]:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    if is_done:
        return "edits.parquet", out.getvalue(), []
    change = rewrite if rng.random() < 0.8 else mutate_bytes
    return "edits.parquet", *change(out.getvalue(), rng, most=few(rng))


def run(case: Case) -> None:
    """All pairs, those that cannot be used left out, as a build does."""
    pairs = FilePairs(data=FOLDER, height=16, width=16).with_absolute_paths()
    for split, count in pairs.num_pairs().items():
        for number in range(count):
            try:
                pair = pairs.pair(split, number)
            except ImageError:
                continue
            for picture in (pair.source, pair.target):
                if np.array_equal(picture[0, 0], COLOUR):
                    raise ViolationError("a row of a table made the reader open a file elsewhere")


TARGETS = (Target("edits", make, run, share=0.3),)
