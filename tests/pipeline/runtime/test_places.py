"""Which settings name an output: all but those that say where something is."""

import dataclasses
from dataclasses import replace

import pytest

from remask.models.images.edit_rows import EditLayout
from remask.pipeline.edits import EmojiPairs, FilePairs, ShapePairs
from remask.pipeline.edits.tables import PairFields
from remask.pipeline.edits.text import PublishedText, WordText
from remask.pipeline.plan import BuildPlan
from remask.pipeline.recipe import BuildRecipe
from remask.pipeline.sources.countdown import CountdownSource
from remask.pipeline.sources.image_edit import ImageEditSource
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource
from remask.pipeline.trajectory import TrajectoryConfig

TRAJECTORIES = TrajectoryConfig(noisy_rate=(1.0, 1.0))
SCENES = {
    "train": 7, "held_out": 7, "side": 96, "grid": 3, "things": (1, 2), "edits": ("add", "remove"),
    "held_out_share": 0.3, "seed": 7,
}  # fmt: skip
PAIRS = {
    ShapePairs(side=48): (SCENES, {}),
    EmojiPairs(folder="emoji", side=48): (
        SCENES | {"objects": 40, "people": 20, "changed_share": 0.1, "categories": ("Objects",)},
        {"folder": "elsewhere"},
    ),
    FilePairs(data="edits"): (
        {
            "schemes": ("https",), "height": 256, "width": 256, "shape": "own", "step": 16,
            "subset": "test", "fields": PairFields(source="before"), "max_rows": 7,
            "held_out_share": 0.3, "split_by": "folder", "max_words": 7,
        },
        {"data": "elsewhere", "images": "elsewhere"},
    ),
}  # fmt: skip
TEXTS = {
    WordText(): ({"size": 300}, {}),
    PublishedText(tokenizer="a"): (
        {"template": "{instruction}", "system": "Edit.", "ids": EditLayout(text_end_id=7)},
        {"tokenizer": "elsewhere"},
    ),
}
SOURCES = {
    SudokuSource(): (
        {
            "side": 4, "train": 7, "held_out": 7, "images": 1, "held_out_share": 0.3,
            "clues": (22, 30),
        },
        {"file": "boards.txt"},
    ),
    TextSource(data="a.jsonl", tokenizer="a", benchmark="math"): (
        {
            "benchmark": "gsm8k", "subjects": ("Algebra",), "split_seed": 7, "subset": "test",
            "prompt": "{problem}", "response": "{answer}", "chat": True, "max_length": 7,
            "held_out_share": 0.3, "mask_token": "<mask>", "append_eos": False, "eos_bucket": 7,
        },
        {"data": "elsewhere.jsonl", "tokenizer": "elsewhere"},
    ),
    CountdownSource(): (
        {
            "train": 7, "held_out": 7, "numbers": (3, 4), "largest": 3, "signs": "given",
            "held_out_share": 0.3,
        },
        {},
    ),
    ImageEditSource(pairs=ShapePairs(), tokenizer="a"): (
        {
            "pairs": ShapePairs(side=96), "text": WordText(size=300), "source_in": "prompt",
            "max_length": 7, "equal": "skip",
        },
        {"tokenizer": "elsewhere"},
    ),
}  # fmt: skip


def source_key(section):
    """The key of a source, or of one with this section, where tokenizer and data stay the same."""
    source = section
    if isinstance(section, ShapePairs | EmojiPairs | FilePairs):
        source = ImageEditSource(pairs=section, tokenizer="a")
    elif isinstance(section, WordText | PublishedText):
        source = ImageEditSource(pairs=ShapePairs(), text=section, tokenizer="a")
    recipe = BuildRecipe(output="out", source=source, trajectories=TRAJECTORIES)
    return BuildPlan(recipe, tokenizer="the same", data="the same", backbone=None).source_key


@pytest.mark.parametrize(
    ("section", "settings", "places"),
    [(section, *changes) for section, changes in (SOURCES | PAIRS | TEXTS).items()],
    ids=lambda x: type(x).__name__,
)
def test_every_setting_changes_the_key_but_where_things_are(section, settings, places):
    names = {field.name for field in dataclasses.fields(section)} - {"kind"}
    assert names == settings.keys() | places.keys(), "a new field belongs in this table"
    base = source_key(section)
    changed = {name: source_key(replace(section, **{name: x})) for name, x in settings.items()}
    assert [name for name, other in changed.items() if other == base] == []
    assert len({base, *changed.values()}) == len(changed) + 1
    moved = {name: source_key(replace(section, **{name: x})) for name, x in places.items()}
    assert moved == dict.fromkeys(places, base)
