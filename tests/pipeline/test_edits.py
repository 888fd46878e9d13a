"""Edit pairs: made of scenes, of emoji, and read from files."""

import dataclasses
import errno
import itertools
import json
import os
import shutil
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from pipeline.edits import EmojiPairs, FilePairs, ShapePairs, scenes
from pipeline.edits.emoji import HUES, TONES, read_emoji, recolour
from pipeline.edits.files import PairFields
from pipeline.edits.pair import split_words
from pipeline.edits.scenes import PLACES
from pipeline.edits.shapes import COLOURS, SHAPES
from pipeline.images import ImageError
from pipeline.storage import StorageError
from tests.pipeline.pictures import (
    disc,
    edit_pictures,
    png,
    write_imgedit,
    write_package,
    write_plain,
    write_pngs,
)

SHARED = Path(__file__).parents[3] / "shared" / "data" / "twemoji"
SHAPE_EDITS = ("recolour", "replace", "add", "remove", "nothing")


@pytest.fixture
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("edit", SHAPE_EDITS)
def test_only_one_thing_changes(edit):
    pairs = ShapePairs(edits=(edit,), side=48, grid=3, things=(2, 6))
    for number in range(20):
        pair = pairs.pair("train", number)
        changed = (pair.source != pair.target).any(-1)
        assert pair.is_equal == (edit == "nothing")
        rows, columns = np.nonzero(changed)
        cells = {(r // 16, c // 16) for r, c in zip(rows, columns, strict=True)}
        assert len(cells) == (edit != "nothing")


def test_instructions_say_what_is_done():
    pairs = ShapePairs(side=48, grid=3, things=(2, 6), edits=SHAPE_EDITS)
    for number in range(60):
        edit = pairs.edit("train", number)
        before, after = edit.before.things[edit.cell], edit.after.things[edit.cell]
        row, column = divmod(edit.cell, 3)
        if edit.kind == "nothing":
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
        ({"train": 0, "held_out": 0}, "need pairs in some split"),
        ({"grid": 4}, r"grid must be one of \[1, 2, 3\], got 4"),
        ({"side": 33}, "side must be a multiple of grid 2"),
        ({"side": 8}, "8 pixels a cell or more, got 8"),
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
    found = recolour(picture, HUES["green"])
    assert found[0, 0].argmax() == 1
    assert (found[0, 0].max(), found[0, 0].min()) == (200, 40)
    assert (found[0, 1:] == picture[0, 1:]).all()


def test_emoji_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere has no emoji: neither emoji.json"):
        EmojiPairs(folder=str(tmp_path / "nowhere")).words()
    folder = str(write_pngs(tmp_path / "pngs"))
    with pytest.raises(ValueError, match="has no emoji in skin tones; leave `tone` out"):
        EmojiPairs(folder=folder).words()
    with pytest.raises(ValueError, match="must be more than the 3 things of a scene"):
        EmojiPairs(folder=folder, objects=2, people=1)
    toneless = EmojiPairs(folder=folder, people=0, edits=("tone",))
    with pytest.raises(ValueError, match="edit tone suits none of the things; leave it out"):
        toneless.pair("train", 0)
    crowded = EmojiPairs(folder=folder, people=0, edits=("add",), side=48, grid=3, things=(8, 8))
    with pytest.raises(ValueError, match="too few things for 8 different ones"):
        crowded.pair("train", 0)


def test_a_split_without_edits_is_an_error(monkeypatch):
    monkeypatch.setattr(scenes, "MOST_EDITS", 1000)
    with pytest.raises(ValueError, match="no held_out edit is found in 1,000 drawn"):
        ShapePairs(edits=("remove",), held_out_share=0.01).pair("held_out", 0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared emoji are not on this machine")
def test_the_shared_emoji_make_every_kind_of_edit():
    pairs = EmojiPairs(folder=str(SHARED))
    kinds = {pairs.pair("held_out", i).kind for i in range(40)}
    assert kinds == set(pairs.edits)
    assert len(pairs.words()) < 200


def test_a_plain_folder_is_read(tmp_path, private_cache):
    pairs = FilePairs(data=str(write_plain(tmp_path / "plain")), height=16, width=16)
    assert sum(pairs.num_pairs().values()) == 6
    found = {
        pairs.pair(s, i).instruction: pairs.pair(s, i)
        for s, n in pairs.num_pairs().items()
        for i in range(n)
    }
    source, target, mask = (np.array(x) for x in edit_pictures(2))
    pair = found["make square 2 red"]
    assert np.array_equal(pair.source, source)
    assert np.array_equal(pair.target, target)
    assert np.array_equal(pair.region, mask > 0)


def test_pictures_keep_their_own_shape_if_asked(tmp_path, private_cache):
    shapes = {(16, 16): (16, 16), (30, 16): (24, 8), (16, 40): (8, 32), (900, 8): (32, 8)}
    folder = write_plain(tmp_path / "plain", [*shapes])
    settings = {"height": 16, "width": 16, "shape": "own", "held_out_share": 0.0}
    pairs = FilePairs(data=str(folder), step=8, **settings)
    assert pairs.size is None
    for i, shape in enumerate(shapes.values()):
        pair = pairs.pair("train", i)
        assert pair.source.shape[:2] == pair.target.shape[:2] == pair.region.shape == shape
        assert pair.region.any()
        assert (pair.source != pair.target).any(-1)[pair.region].mean() > 0.9
    with pytest.raises(ValueError, match="no picture of 16 × 16 pixels in all has sides in steps"):
        FilePairs(data=str(folder), step=32, **settings)


def test_imgedit_is_read_as_published(tmp_path, private_cache):
    folder = write_imgedit(tmp_path / "ImgEdit")
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    assert pairs.num_pairs() == {"train": 4}, "the row with two inputs is no pair"
    assert dataclasses.replace(pairs, most=4).num_pairs() == {"train": 4}
    pair = pairs.pair("train", 1)
    assert pair.instruction == "Make the square red."
    assert pair.region is None
    assert np.array_equal(pair.target, np.array(edit_pictures(1)[1]))
    assert pairs.words() == ("make", "red", "square", "the")
    table = FilePairs(data=f"{folder}/Parquet/*.parquet", height=16, width=16, held_out_share=0.0)
    assert np.array_equal(table.pair("train", 1).source, pair.source)
    assert table.data_hash() == pairs.data_hash()


def test_pictures_in_the_table_itself_are_read(tmp_path, private_cache):
    pictures = [[png(x) for x in edit_pictures(i)] for i in range(3)]
    pictures[1][0] = pictures[1][0][:60]
    rows = [
        {
            "before": {"bytes": a, "path": None},
            "after": {"bytes": b, "path": None},
            "text": f"t {i}",
        }
        for i, (a, b, _) in enumerate(pictures)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "edits.parquet")
    fields = PairFields(source="before", target="after", instruction="text")
    pairs = FilePairs(
        data=f"{tmp_path}/edits.parquet", fields=fields, height=16, width=16, held_out_share=0.0
    )
    assert np.array_equal(pairs.pair("train", 2).source, np.array(edit_pictures(2)[0]))
    with pytest.raises(ImageError, match="edits-000000001 .in the table. is damaged"):
        pairs.pair("train", 1)


def test_absolute_paths_are_taken_as_they_are(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain")
    names = ["source", "target"]
    cells = [{x: {"bytes": None, "path": str(folder / f"0-{x}.png")} for x in names}]
    lines = [{x: str(folder / f"0-{x}.png") for x in names}]
    for name, rows in (("cells", cells), ("paths", lines)):
        table = pa.Table.from_pylist([row | {"instruction": "make it red"} for row in rows])
        pq.write_table(table, tmp_path / f"{name}.parquet")
        data = f"{tmp_path}/{name}.parquet"
        pairs = FilePairs(data=data, height=16, width=16, held_out_share=0.0)
        assert np.array_equal(pairs.pair("train", 0).source, np.array(edit_pictures(0)[0]))


def test_a_place_of_another_machine_is_no_fault_of_the_storage(
    tmp_path, private_cache, monkeypatch
):
    folder = write_plain(tmp_path / "plain", [(16, 16)])
    line = json.loads((folder / "edits.jsonl").read_text())
    away = {x: f"/elsewhere/{line[x]}" for x in ("source", "target")}
    (folder / "edits.jsonl").write_text(json.dumps(line | away))
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    real = LocalFileSystem.cat_file

    def closed(self, path, *more):
        if path.startswith("/elsewhere/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(self, path, *more)

    monkeypatch.setattr(LocalFileSystem, "cat_file", closed)
    with pytest.raises(ImageError, match="there is no /elsewhere/0-source.png in"):
        pairs.pair("train", 0)
    (folder / "elsewhere").mkdir()
    for name in ("source", "target"):
        shutil.copy(folder / f"0-{name}.png", folder / "elsewhere")
    assert np.array_equal(pairs.pair("train", 0).source, np.array(edit_pictures(0)[0]))


def test_rows_are_pairs_however_their_table_is_cut_up(tmp_path, private_cache):
    """Row groups of two, pictures without a path, and cells that hold none or several."""

    def cell(number, side):
        return {"bytes": png(edit_pictures(number)[side])}

    rows = [
        {"source": [cell(i, 0)], "target": [cell(i, 1)], "instruction": f"edit {i}"}
        for i in range(5)
    ]
    rows[1]["source"] = []
    rows[3]["target"] = [cell(3, 1)] * 2
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "edits.parquet", row_group_size=2)
    pairs = FilePairs(data=f"{tmp_path}/edits.parquet", height=16, width=16, held_out_share=0.0)
    assert pairs.num_pairs() == {"train": 4}
    assert np.array_equal(pairs.pair("train", 3).target, np.array(edit_pictures(4)[1]))
    with pytest.raises(ImageError, match="names no picture, got None"):
        pairs.pair("train", 1)
    pq.write_table(pa.Table.from_pylist(rows[3:4]), tmp_path / "several.parquet")
    with pytest.raises(ValueError, match="none of the 1 rows of .* has one source and one target"):
        FilePairs(data=f"{tmp_path}/several.parquet").num_pairs()


def test_several_masks_are_refused(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain", [(16, 16)])
    line = json.loads((folder / "edits.jsonl").read_text()) | {"mask": ["0-mask.png"] * 2}
    (folder / "edits.jsonl").write_text(json.dumps(line))
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    with pytest.raises(ImageError, match="plain-000000000 has 2 pictures where an edit has one"):
        pairs.pair("train", 0)


def test_a_list_without_a_mask_is_named(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain", [(16, 16)])
    line = json.loads((folder / "edits.jsonl").read_text()) | {"mask": []}
    masked = json.loads((folder / "edits.jsonl").read_text()) | {"mask": ["0-mask.png"]}
    (folder / "edits.jsonl").write_text("\n".join(map(json.dumps, (line, masked))))
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    assert pairs.pair("train", 1).region.any()
    with pytest.raises(ImageError, match="plain-000000000 names no picture, got None"):
        pairs.pair("train", 0)


def test_a_target_of_another_shape_is_refused(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain", [(16, 16), (16, 16)])
    for number, size in enumerate([(17, 16), (20, 16)]):
        edit_pictures(number)[1].resize(size).save(folder / f"{number}-target.png")
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    assert pairs.pair("train", 0).target.shape == (16, 16, 3)
    with pytest.raises(ImageError, match=r"1-target.png is 20 × 16, .*1-source.png 16 × 16"):
        pairs.pair("train", 1)


@pytest.mark.parametrize(
    ("name", "text"), [("emoji.json", '[{"name": 1}]'), ("emoji.json", "["), ("meta.jsonl", "{}")]
)
def test_a_foreign_index_of_emoji_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=f"{name} and the pictures it names cannot be read"):
        EmojiPairs(folder=str(tmp_path)).words()


def test_splits_follow_the_picture(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain")
    lines = [json.loads(x) for x in (folder / "edits.jsonl").read_text().splitlines()]
    again = [line | {"instruction": "another edit of it"} for line in lines]
    (folder / "edits.jsonl").write_text("\n".join(map(json.dumps, lines + again)))
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.5)
    pictures = {
        split: {pairs.pair(split, i).source.tobytes() for i in range(count)}
        for split, count in pairs.num_pairs().items()
    }
    assert len(pictures) == 2
    assert not pictures["train"] & pictures["held_out"]
    assert sum(pairs.num_pairs().values()) == 12


def test_folders_of_one_name_are_one_picture_if_asked(tmp_path, private_cache):
    lines = [
        {"source": f"{part}/{i:03d}/a.png", "target": f"{part}/{i:03d}/b.png", "instruction": part}
        for part in ("add", "remove", "replace")
        for i in range(40)
    ]
    (tmp_path / "edits.jsonl").write_text("\n".join(map(json.dumps, lines)))
    alone = FilePairs(data=str(tmp_path), held_out_share=0.5)
    together = dataclasses.replace(alone, split_by="folder")

    def photos(pairs):
        return [{row % 40 for row in pairs._rows[split]} for split in ("train", "held_out")]

    trained, held_out = photos(together)
    assert not trained & held_out
    assert trained | held_out == {*range(40)}
    assert set.intersection(*photos(alone)), "by their paths, copies of a photo part"


def test_so_many_rows_are_chosen_by_a_hash(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain", [(16, 16)] * 40)
    everything = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.5)
    some = dataclasses.replace(everything, most=30)
    fewer = dataclasses.replace(everything, most=10)
    of = {
        name: {split: set(pairs._rows[split]) for split in ("train", "held_out")}
        for name, pairs in (("all", everything), ("some", some), ("fewer", fewer))
    }
    assert sum(some.num_pairs().values()) == 30
    assert sum(fewer.num_pairs().values()) == 10
    for split in ("train", "held_out"):
        assert of["fewer"][split] < of["some"][split] < of["all"][split], "both splits lose some"
    assert dataclasses.replace(everything, most=99).num_pairs() == everything.num_pairs()
    with pytest.raises(ValueError, match="most must be at least 1, got 0"):
        dataclasses.replace(everything, most=0)


@pytest.mark.parametrize("as_list", [False, True])
def test_pictures_of_a_data_set_are_decoded_one_by_one(tmp_path, private_cache, as_list):
    """As `datasets` saves them: pictures, or lists of pictures, one of them damaged."""
    pictures = [[png(x) for x in edit_pictures(i)[:2]] for i in range(4)]
    pictures[2][1] = pictures[2][1][:60]
    picture = datasets.Image()
    kind = datasets.Sequence(picture) if as_list else picture
    columns = {
        name: [
            [x] if as_list else x
            for x in ({"bytes": row[side], "path": f"{i}.png"} for i, row in enumerate(pictures))
        ]
        for side, name in enumerate(("source", "target"))
    }
    features = datasets.Features(
        {"source": kind, "target": kind, "instruction": datasets.Value("string")}
    )
    rows = columns | {"instruction": [f"edit {i}" for i in range(4)]}
    table = datasets.Dataset.from_dict(rows, features)
    table.to_parquet(f"{tmp_path}/edits.parquet")
    pairs = FilePairs(data=f"{tmp_path}/edits.parquet", height=16, width=16, held_out_share=0.0)
    assert pairs.num_pairs() == {"train": 4}
    assert np.array_equal(pairs.pair("train", 3).target, np.array(edit_pictures(3)[1]))
    with pytest.raises(ImageError, match=r"edits-000000002 \(2.png\) is damaged"):
        pairs.pair("train", 2)


def fail(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_file_mistakes_are_named(tmp_path, private_cache, monkeypatch):
    folder = write_plain(tmp_path / "plain")
    other = PairFields(source="before")
    with pytest.raises(
        ValueError, match=r"has no columns \['before'\]; it has .*name them as fields"
    ):
        FilePairs(data=str(folder), fields=other).num_pairs()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="there is no table of edits at .*empty"):
        FilePairs(data=str(tmp_path / "empty")).num_pairs()
    with pytest.raises(ValueError, match="there is no table of edits at .*gone.parquet"):
        FilePairs(data=str(tmp_path / "gone.parquet")).num_pairs()
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    (folder / "3-target.png").unlink()
    with pytest.raises(ImageError, match="plain-000000003: there is no 3-target.png in"):
        pairs.pair("train", 3)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "cat_file", fail)
        with pytest.raises(StorageError, match=r"cannot read .*0-source.png: .*Input/output error"):
            pairs.pair("train", 0)
    disc("red", 20).save(folder / "2-mask.png")
    with pytest.raises(ImageError, match=r"2-mask\.png is 20 × 20, its picture .*2-source\.png 16"):
        pairs.pair("train", 2)
    shutil.copy(folder / "edits.jsonl", folder / "1-source.png")
    with pytest.raises(ImageError, match=r"1-source\.png is not a picture"):
        pairs.pair("train", 1)
