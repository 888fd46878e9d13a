"""Edit pairs made of scenes: shapes and emoji."""

import dataclasses
import itertools

import numpy as np
import pytest

from remask.pipeline.edits import EmojiPairs, ShapePairs, scenes
from remask.pipeline.edits.emoji import HUES, TONES, read_emoji, recolour
from remask.pipeline.edits.pair import split_words
from remask.pipeline.edits.scenes import PLACES
from remask.pipeline.edits.shapes import COLOURS, SHAPES
from tests.pipeline.pictures import (
    write_package,
    write_pngs,
)
from tests.places import SHARED

TWEMOJI = SHARED / "twemoji"
SHAPE_EDITS = ("recolour", "replace", "add", "remove", "no_op")


@pytest.mark.parametrize("edit", SHAPE_EDITS)
def test_only_one_thing_changes(edit):
    pairs = ShapePairs(edits=(edit,), side=48, grid=3, things=(2, 6))
    for number in range(20):
        pair = pairs.pair("train", number)
        changed = (pair.source != pair.target).any(-1)
        assert pair.is_equal == (edit == "no_op")
        rows, columns = np.nonzero(changed)
        cells = {(r // 16, c // 16) for r, c in zip(rows, columns, strict=True)}
        assert len(cells) == (edit != "no_op")


def test_instructions_say_what_is_done():
    pairs = ShapePairs(side=48, grid=3, things=(2, 6), edits=SHAPE_EDITS)
    for number in range(60):
        edit = pairs.edit("train", number)
        before, after = edit.before.things[edit.cell], edit.after.things[edit.cell]
        row, column = divmod(edit.cell, 3)
        if edit.kind == "no_op":
            assert edit.instruction.removeprefix("remove the ") not in edit.before.names
            assert edit.before == edit.after
        elif edit.kind == "add":
            assert edit.instruction == f"add a {after.words} at the {PLACES[3][row][column]}"
        else:
            ends = {"recolour": f"make the {before.words} ", "remove": f"remove the {before.words}"}
            ends["replace"] = f"replace the {before.words} with a "
            if after:
                ends["recolour"] += after.look
                ends["replace"] += after.words
            assert edit.instruction == ends[edit.kind]
        named = [t.words for t in edit.before.things if t]
        assert len(named) == len(set(named)), "every thing can be named"


def test_a_pair_follows_from_seed_split_and_number_alone():
    one, again = ShapePairs(seed=3), ShapePairs(seed=3, train=77, held_out=5)
    assert np.array_equal(one.pair("train", 9).source, again.pair("train", 9).source)
    first = [ShapePairs(seed=seed).pair("train", 0).instruction for seed in range(8)]
    assert len(set(first)) > 4
    with pytest.raises(ValueError, match="there is no pair 5 in held_out"):
        again.pair("held_out", 5)


def test_held_out_scenes_and_instructions_are_never_trained_on():
    pairs = ShapePairs(grid=2, things=(1, 1), train=400, held_out=100)  # few, so they would meet
    edits = {s: [pairs.edit(s, i) for i in range(n)] for s, n in pairs.num_pairs().items()}
    for part in ("before", "instruction"):
        train, held_out = ({repr(getattr(e, part)) for e in edits[s]} for s in edits)
        assert train
        assert held_out
        assert not train & held_out
    assert {e.kind for e in edits["held_out"]} == set(pairs.edits)


def test_every_shape_has_its_own_pixels_and_colour():
    pairs, drawn = ShapePairs(), []
    for name, look in itertools.product(SHAPES, COLOURS):
        canvas = np.full((16, 16, 3), 255, np.uint8)
        thing = dataclasses.replace(
            pairs.random_thing(np.random.default_rng(0)), name=name, look=look
        )
        pairs.draw(canvas, thing)
        footprint = (canvas != 255).any(-1)
        assert (canvas[footprint] == COLOURS[look]).all()
        assert 0.2 < footprint.mean() < 0.8
        drawn.append(canvas.tobytes())
    assert len(set(drawn)) == len(SHAPES) * len(COLOURS)


@pytest.mark.parametrize("kind", ["shapes", "package"])
def test_words_are_all_that_instructions_have(kind, tmp_path):
    pairs = ShapePairs(edits=SHAPE_EDITS)
    if kind == "package":
        pairs = EmojiPairs(folder=str(write_package(tmp_path / "emoji")), side=32)
    said = {w for i in range(200) for w in split_words(pairs.edit("train", i).instruction)}
    assert said <= set(pairs.words())
    assert len(pairs.words()) == len(set(pairs.words()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": 0, "held_out": 0}, "train and held_out are both 0"),
        ({"grid": 4}, r"grid must lie in \[1, 3\], got 4"),
        ({"side": 33}, "side must be a multiple of grid 2"),
        ({"side": 8}, "at least 8 pixels per cell, got 8"),
        ({"things": (2, 4)}, "with room to add one, got 2, 4"),
        ({"edits": ("paint",)}, r"edits must be among .*, got \['paint'\]"),
        ({"edits": ()}, "edits must be among"),
        ({"edits": ("tone",)}, r"got \['tone'\]"),
        ({"held_out_share": 1.0}, "held_out_share must lie in"),
        ({"seed": -1}, "seed must be 0 or more"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ShapePairs(**settings)


def test_skin_tones_and_colours_of_a_package(tmp_path):
    folder = str(write_package(tmp_path / "emoji"))
    people = {e.name: e for e in read_emoji(folder) if e.tones}
    assert {name: set(e.tones) for name, e in people.items()} == {
        "boy": set(TONES.values()),
        "girl": set(TONES.values()),
    }
    pairs = EmojiPairs(folder=folder, side=32, edits=("tone",), changed_share=0.5)
    was_changed = set()
    for number in range(16):
        edit = pairs.edit("train", number)
        before, after = edit.before.things[edit.cell], edit.after.things[edit.cell]
        was_changed.add(bool(before.look))
        assert edit.instruction == f"give the {before.words} {after.look} skin"
        assert before.look != after.look
        assert after.name in people
        assert not pairs.pair("train", number).is_equal
    assert was_changed == {True, False}
    natural = dataclasses.replace(pairs, changed_share=0.0)
    looks = {
        thing.look for n in range(16) for thing in natural.edit("train", n).before.things if thing
    }
    assert looks == {""}


def test_any_folder_of_pictures_will_do_and_grey_ones_keep_their_colour(tmp_path):
    folder = str(write_pngs(tmp_path / "pngs"))
    edits = ("recolour", "replace", "add", "remove")
    pairs = EmojiPairs(folder=folder, side=32, edits=edits)
    hues = {e.name: e.hues for e in read_emoji(folder)}
    assert hues["stone"] == ()
    assert set(hues["whale"]) >= {"red", "green"}
    assert "blue" not in hues["whale"]
    for number in range(30):
        assert not pairs.pair("train", number).is_equal


def test_recolouring_sets_the_hue_and_keeps_greys():
    picture = np.array([[[200, 40, 40], [128, 128, 128], [255, 255, 255]]], np.uint8)
    green = recolour(picture, HUES["green"])
    assert green[0, 0].argmax() == 1
    assert (green[0, 0].max(), green[0, 0].min()) == (200, 40)
    assert (green[0, 1:] == picture[0, 1:]).all()


def test_emoji_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere has no emoji: neither emoji.json"):
        EmojiPairs(folder=str(tmp_path / "nowhere")).words()
    folder = str(write_pngs(tmp_path / "pngs"))
    with pytest.raises(ValueError, match="has no emoji with skin tones; leave `tone` out"):
        EmojiPairs(folder=folder).words()
    with pytest.raises(ValueError, match="must be more than the 3 things of a scene"):
        EmojiPairs(folder=folder, objects=2, people=1)
    toneless = EmojiPairs(folder=folder, people=0, edits=("tone",))
    with pytest.raises(ValueError, match="edit tone applies to none of the things; leave it out"):
        toneless.pair("train", 0)
    crowded = EmojiPairs(folder=folder, people=0, edits=("add",), side=48, grid=3, things=(8, 8))
    with pytest.raises(ValueError, match="too few things for 8 different ones"):
        crowded.pair("train", 0)


def test_a_split_without_edits_is_an_error(monkeypatch):
    monkeypatch.setattr(scenes, "MAX_EDITS", 1000)
    with pytest.raises(ValueError, match="none of 1,000 drawn edits belongs to held_out"):
        ShapePairs(edits=("remove",), held_out_share=0.01).pair("held_out", 0)


@pytest.mark.skipif(not TWEMOJI.is_dir(), reason="the shared emoji are not on this machine")
def test_the_shared_emoji_make_every_kind_of_edit():
    pairs = EmojiPairs(folder=str(TWEMOJI))
    kinds = {pairs.pair("held_out", i).kind for i in range(40)}
    assert kinds == set(pairs.edits)
    assert len(pairs.words()) < 200


@pytest.mark.parametrize(
    ("name", "text"), [("emoji.json", '[{"name": 1}]'), ("emoji.json", "["), ("meta.jsonl", "{}")]
)
def test_a_foreign_index_of_emoji_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name} and the pictures it names cannot be read"):
        EmojiPairs(folder=str(tmp_path)).words()
