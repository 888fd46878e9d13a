"""inputs.json of a text model and of one that edits pictures, and requests to both."""

import functools
from pathlib import Path
from random import Random

from PIL import Image

from remask.infra import revise
from remask.models.checkpoints.input_files import INPUTS
from remask.models.text.prompts import load_tokenizer
from tests.fuzz.bases import made, reseal
from tests.fuzz.case import Case, Files, Target
from tests.fuzz.mutate import mutate_bytes, mutate_json, mutate_text
from tests.pipeline.pictures import png
from tests.revisers import DRAFT, PROMPT, write_edits, write_sums

TEXT, EDITS = "text-of-fuzz", "edits-of-fuzz"
SCENE = "scene.png"
PARTS = ("▒", "_", ".", "", " ", "x", "\n", "8+3=9;", "\ud800", "{prompt}", "\x00", "9" * 40)


@functools.cache
def text() -> Files:
    return made(lambda folder: write_sums(folder / TEXT))


@functools.cache
def edits() -> Files:
    def write(folder: Path) -> None:
        _, _, (pair, *_) = write_edits(folder)
        (folder / "model").rename(folder / EDITS)
        (folder / SCENE).write_bytes(png(Image.fromarray(pair.source)))

    files = made(write)
    return {name: data for name, data in files.items() if not name.startswith("vq/")}


def make_inputs(rng: Random) -> Case:
    """A sound model with another inputs.json, whose checksum is right."""
    is_text = rng.random() < 0.7
    files, folder = (dict(text()), TEXT) if is_text else (dict(edits()), EDITS)
    name = f"{folder}/{INPUTS}"
    change = mutate_json if rng.random() < 0.85 else mutate_bytes
    files[name], notes = change(files[name], rng)
    reseal(files, name)
    asked = ["--prompt", PROMPT, "--draft", DRAFT]
    if not is_text:
        asked = ["--picture", SCENE, "--instruction", "make the red square blue"]
    names = (INPUTS, folder, "prompt", "draft", "picture", "row", "instruction", "size")
    return Case(files, ("--checkpoint", folder, *asked), tuple(notes), names)


def make_request(rng: Random) -> Case:
    """Prompts and drafts as arguments, and lines of a file, for a sound model."""
    prompt, notes = mutate_text(PROMPT, rng, PARTS)
    draft, more = mutate_text(DRAFT, rng, PARTS)
    if rng.random() < 0.5:
        line = f'{{"prompt": "{PROMPT}", "draft": "{DRAFT}", "length": 12}}\n'.encode()
        data, notes = mutate_bytes(line * 2, rng) if rng.random() < 0.5 else mutate_json(line, rng)
        case = ("--checkpoint", TEXT, "lines.jsonl")
        return Case(text() | {"lines.jsonl": data}, case, tuple(notes), ("lines.jsonl", "prompts"))
    arguments = ("--checkpoint", TEXT, f"--prompt={prompt}", f"--draft={draft}")
    return Case(dict(text()), arguments, (*notes, *more), ("prompt", "draft", "usage"))


def run(case: Case) -> None:
    load_tokenizer.cache_clear()
    revise.main([*case.arguments, "--max-steps", "2", "--show"])


TARGETS = (
    Target("inputs", make_inputs, run, share=0.3),
    Target("requests", make_request, run, share=0.3),
)
