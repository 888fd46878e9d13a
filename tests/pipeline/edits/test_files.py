"""Edit pairs read from files: their pictures, in and beside tables."""

import dataclasses
import errno
import json
import os
import shutil
import socket

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from remask.pipeline.edits import FilePairs
from remask.pipeline.edits.images import ImageError
from remask.pipeline.edits.tables import PairFields
from remask.pipeline.runtime.storage import StorageError
from tests.pipeline.pictures import (
    disc,
    edit_pictures,
    png,
    write_imgedit,
    write_plain,
)


def test_a_plain_folder_is_read(tmp_path, private_cache):
    pairs = FilePairs(data=str(write_plain(tmp_path / "plain")), height=16, width=16)
    assert sum(pairs.num_pairs().values()) == 6
    pairs_by_instruction = {
        pairs.pair(s, i).instruction: pairs.pair(s, i)
        for s, n in pairs.num_pairs().items()
        for i in range(n)
    }
    source, target, mask = (np.array(x) for x in edit_pictures(2))
    pair = pairs_by_instruction["make square 2 red"]
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
    with pytest.raises(ValueError, match="no picture of at most 16 × 16 pixels has sides in steps"):
        FilePairs(data=str(folder), step=32, **settings)


def test_imgedit_is_read_as_published(tmp_path, private_cache, capsys):
    folder = write_imgedit(tmp_path / "ImgEdit")
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    assert pairs.num_pairs() == {"train": 4}, "the row with two inputs is no pair"
    assert "ImgEdit: 1 of 5 rows are left out" in capsys.readouterr().err
    assert dataclasses.replace(pairs, max_rows=4).num_pairs() == {"train": 4}
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


def test_absolute_paths_below_the_folder_are_taken_as_they_are(tmp_path, private_cache):
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


def test_a_place_of_another_machine_is_looked_for_below_the_folder(tmp_path, private_cache):
    folder = write_plain(tmp_path / "plain", [(16, 16)])
    pairs = naming(folder, "/elsewhere/0-{}.png")
    with pytest.raises(ImageError, match="there is no /elsewhere/0-source.png in"):
        pairs.pair("train", 0)
    (folder / "elsewhere").mkdir()
    for name in ("source", "target"):
        shutil.copy(folder / f"0-{name}.png", folder / "elsewhere")
    assert np.array_equal(pairs.pair("train", 0).source, np.array(edit_pictures(0)[0]))


@pytest.mark.parametrize(
    "path",
    ["../out/0-{}.png", "a/../../out/0-{}.png", "{out}/0-{}.png", "file://{out}/0-{}.png"],
)
def test_a_row_reads_nothing_outside_its_folder(tmp_path, private_cache, path):
    out, folder = (write_plain(tmp_path / x, [(16, 16)]) for x in ("out", "plain"))
    pairs = naming(folder, path.replace("{out}", str(out)))
    with pytest.raises(ImageError, match="does not name a file below|is outside|there is no"):
        pairs.pair("train", 0)


@pytest.mark.parametrize("scheme", ["http", "dask", "gs", "zip", "zip://a::http", "nosuch"])
def test_a_row_opens_no_url_that_the_recipe_does_not_allow(tmp_path, private_cache, scheme):
    folder = write_plain(tmp_path / "plain", [(16, 16)])
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        pairs = naming(folder, f"{scheme}://{address}/{{}}.png")
        with pytest.raises(
            ImageError, match="is outside .*plain; to allow it, name its scheme in `schemes`"
        ):
            pairs.pair("train", 0)
        with pytest.raises(BlockingIOError):  # nobody called
            server.accept()


def test_a_scheme_that_the_recipe_names_is_read(tmp_path, private_cache):
    out, folder = (write_plain(tmp_path / x, [(16, 16)]) for x in ("out", "plain"))
    pairs = naming(folder, f"file://{out}/0-{{}}.png", schemes=("file",))
    assert np.array_equal(pairs.pair("train", 0).source, np.array(edit_pictures(0)[0]))


def naming(folder, path, **settings):
    """Pairs of a folder whose only row names its pictures so, {} being source or target."""
    line = json.loads((folder / "edits.jsonl").read_text())
    line |= {x: path.replace("{}", x) for x in ("source", "target")}
    (folder / "edits.jsonl").write_text(json.dumps(line))
    return FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0, **settings)


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
