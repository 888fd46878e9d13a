"""`python -m remask.infra.unpack_imgedit`: published archives, read by their tables."""

import io
import subprocess
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remask.pipeline.edits import FilePairs
from tests.pipeline.pictures import edit_pictures, png

ARCHIVES = {  # of each the folder within it, and what its table says before a picture's name
    "action_part1": ("part1/", ""),
    "results_adjust_canny_laion_part2": ("./7/", "results_adjust_canny_laion_part2/7/"),
    "results_add_laion_part0": ("results_add_laion_part0/7/", "results_add_laion_part0/7/"),
    "results_replace_part0": ("results/7/", "replace/7/"),
}


def write_archives(folder):
    """Each picture's archive, cut into parts of which the tenth comes after the ninth."""
    (folder / "Singleturn").mkdir(parents=True)
    (folder / "Parquet").mkdir()
    for number, (name, (within, said)) in enumerate(ARCHIVES.items()):
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as archive:
            for side, picture in zip(("a", "b"), edit_pictures(number)[:2], strict=True):
                entry = tarfile.TarInfo(f"{within}{number}{side}.png")
                data = png(picture)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        data = whole.getvalue()
        size = -(-len(data) // 11)
        for part in range(11):
            path = folder / "Singleturn" / f"{name}.tar.split.{part:02d}"
            path.write_bytes(data[part * size : (part + 1) * size])
        sides = {
            column: [f"{said}{number}{side}.png"]
            for column, side in (("input_images", "a"), ("output_images", "b"))
        }
        row = sides | {"prompt": f"edit {number}"}
        pq.write_table(pa.Table.from_pylist([row]), folder / "Parquet" / f"{name}.parquet")


def unpack(folder):
    command = [sys.executable, "-m", "remask.infra.unpack_imgedit", str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_picture_is_where_its_table_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "ImgEdit"
    write_archives(folder)
    done = unpack(folder)
    assert done.returncode == 0, done.stderr
    pairs = FilePairs(data=str(folder), height=16, width=16, held_out_share=0.0)
    unpacked = [pairs.pair("train", i) for i in range(len(ARCHIVES))]
    order = sorted(ARCHIVES)  # tables are read by their names
    for pair, name in zip(unpacked, order, strict=True):
        number = list(ARCHIVES).index(name)
        assert pair.instruction == f"edit {number}"
        assert np.array_equal(pair.source, np.array(edit_pictures(number)[0]))
    for part in (folder / "Singleturn").glob("action_part1.tar.split.*"):
        part.unlink()
    (folder / "Singleturn" / "action_part1.tar.split.00").write_bytes(b"")
    assert unpack(folder).returncode == 0, "what is unpacked is left alone"


def test_a_damaged_archive_is_not_taken_for_done(tmp_path):
    folder = tmp_path / "ImgEdit"
    write_archives(folder)
    first = folder / "Singleturn" / "action_part1.tar.split.00"
    for part in folder.glob("Singleturn/action_part1.tar.split.*"):
        if part != first:
            part.unlink()
    first.write_bytes(first.read_bytes()[:600])  # a header and a piece of its picture
    done = unpack(folder)
    assert done.returncode == 1
    assert "action_part1: unexpected end of data; download it again" in done.stderr
    assert not (folder / "Singleturn" / ".action_part1.unpacked").exists()
    nothing = unpack(tmp_path / "nowhere")
    assert nothing.returncode == 2
    assert nothing.stderr.count("\n") == 1
    assert "nowhere/Singleturn has no archives; name the folder" in nothing.stderr


@pytest.mark.parametrize("name", ["results/../../../out.png", "/out.png", "link"])
def test_an_archive_writes_nothing_outside_its_folder(tmp_path, name):
    folder = tmp_path / "ImgEdit" / "Singleturn"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "results_add_laion_part0.tar", "w") as archive:
        if name == "link":
            link = tarfile.TarInfo("way")
            link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
            archive.addfile(link)
            name = "way/out.png"
        entry = tarfile.TarInfo(name)
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))
    done = unpack(tmp_path / "ImgEdit")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("**/out.png"))
