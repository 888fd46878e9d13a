"""The shards command: what is in a data set, what is wrong with it, and its repair."""

import hashlib
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remask.pipeline import open_manifest, read_rows
from remask.pipeline.format import manifest
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.shards import main as shards_command
from tests.pipeline.test_build import HERE, files, run


@pytest.fixture
def data(toy, tmp_path):
    run(toy(run=HERE))
    return str(tmp_path / "data")


def test_list_filter_and_query(data, capsys):
    shards_command([data, "--where", "split = 'held_out' and rows > 10"])
    out = capsys.readouterr().out
    assert "held_out-00000-00" in out
    assert "train-0" not in out
    shards_command([data, "--sql", "select sum(rows) as total from manifest"])
    assert "340" in capsys.readouterr().out


def test_list_shows_eight_columns_and_with_all_every_one(data, capsys):
    shards_command([data])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == "shape: (9, 8)"
    columns = len(open_manifest(data).collect_schema())
    assert printed.err == f"{columns - 8} more columns with --all\n"
    assert max(len(line) for line in printed.out.splitlines()) <= 100
    shards_command([data, "--all"])
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == f"shape: (9, {columns})"
    assert printed.err == ""


def test_show_prints_a_line_per_state(data, capsys):
    shards_command([data, "show", "train-00000-00", "3"])
    lines = capsys.readouterr().out.splitlines()
    row = list(read_rows(f"{data}/shards/train-00000-00.parquet"))[3]
    assert lines[0] == f"{row.example_id}: 16 tokens, prompt 0"
    assert len(lines) == 8
    assert lines[7].endswith("".join(map(str, row.target.tolist())))
    assert lines[1 + row.step].startswith("→")


def test_verify_passes_what_is_sound_and_names_what_is_not(data, capsys):
    with pytest.raises(SystemExit, match="0"):
        shards_command([data, "verify"])
    assert "9 shards, 340 rows: all sound" in capsys.readouterr().out
    shard = Path(data) / "shards" / "train-00002-01.parquet"
    good = bytearray(shard.read_bytes())
    good[50] ^= 1
    shard.write_bytes(good)
    (Path(data) / "shards" / "train-00000-00.parquet").unlink()
    (Path(data) / "shards" / "stranger.parquet").write_bytes(b"")
    with pytest.raises(SystemExit, match="1"):
        shards_command([data, "verify"])
    out = capsys.readouterr().out
    assert "train-00002-01.parquet was altered: its checksum is not the manifest's" in out
    assert "train-00000-00.parquet is missing; run the build again" in out
    assert "stranger.parquet is in no manifest; remove it" in out


def test_bad_shards_are_removed_and_built_again(data, toy, capsys):
    before = files(data)
    altered = Path(data) / "shards" / "train-00002-01.parquet"
    altered.write_bytes(altered.read_bytes()[::-1])
    (Path(data) / "shards" / "train-00000-00.parquet").unlink()
    with pytest.raises(SystemExit, match="1"):
        shards_command([data, "verify", "--repair"])
    assert "removed what is damaged; run the build again" in capsys.readouterr().out
    assert run(toy(run=HERE)).new_units == 2
    assert files(data) == before


def test_verify_looks_inside(data, capsys):
    """A shard whose bytes match the manifest but whose rows are no trajectories is caught."""
    path = Path(data) / "shards" / "train-00002-01.parquet"
    table = pq.read_table(path)
    step = pa.array([7] * len(table), pa.uint16())
    place = table.schema.get_field_index("step")
    pq.write_table(table.set_column(place, table.schema.field(place), step), path)
    trust(data, path)
    with pytest.raises(SystemExit, match="1"):
        shards_command([data, "verify"])
    assert "01.parquet is damaged: step must not exceed horizon 6, got 7" in capsys.readouterr().out


def trust(data, path):
    """Make the manifest vouch for a shard as it is."""
    content = path.read_bytes()
    at = pl.col("shard") == path.stem
    table = pl.read_parquet(f"{data}/manifest.parquet").with_columns(
        sha256=pl.when(at).then(pl.lit(hashlib.sha256(content).hexdigest())).otherwise("sha256"),
        bytes=pl.when(at).then(pl.lit(len(content))).otherwise("bytes"),
    )
    table.write_parquet(f"{data}/manifest.parquet")


def test_repair_removes_nothing_outside_the_data_set(data, tmp_path, capsys):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    table = pl.read_parquet(f"{data}/manifest.parquet")
    for path in ("../victim.txt", str(victim), "shards/../../victim.txt", "shards/*"):
        table.with_columns(path=pl.lit(path)).write_parquet(f"{data}/manifest.parquet")
        before = files(f"{data}/shards")
        with pytest.raises(SystemExit, match="1"):
            shards_command([data, "verify", "--repair"])
        assert "manifest.parquet is damaged: shard 'held_out-00000-00' has the path" in (
            capsys.readouterr().out
        )
        assert victim.read_text() == "precious"
        assert files(f"{data}/shards") == before


METADATA = ["recipe.json", "provenance.json", "manifest.parquet", "rows/train-00001-00.json"]


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_damaged_metadata_is_named_and_repaired(toy, tmp_path, name, content, monkeypatch, capsys):
    data = tmp_path / "data"
    if name.startswith("rows"):
        with monkeypatch.context() as patch:
            patch.setattr(manifest, "close", lambda storage, recipe: None)
            run(toy(run=HERE))
    else:
        run(toy(run=HERE))
    whole = files(data)
    (data / name).write_bytes(content)
    with pytest.raises(SystemExit, match="1"):
        shards_command([str(data), "verify"])
    assert f"{name} is damaged: " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="1"):
        shards_command([str(data), "verify", "--repair"])
    assert not (data / name).exists()
    run(toy(run=HERE))
    if name.startswith("rows"):
        assert (data / "manifest.parquet").exists()
    else:
        assert files(data) | {"provenance.json": b""} == whole | {"provenance.json": b""}
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        shards_command([str(data), "verify"])


def test_a_damaged_row_does_not_hold_up_a_build(toy, tmp_path, monkeypatch):
    run(toy(run=HERE, output=str(tmp_path / "calm")))
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "close", lambda storage, recipe: None)
        run(toy(run=HERE))
    (tmp_path / "data" / "rows" / "train-00001-00.json").write_bytes(b"")
    with pytest.raises(StorageError, match=r"train-00001-00.json is damaged: .*verify --repair"):
        open_manifest(str(tmp_path / "data"))
    assert run(toy(run=HERE)).new_units == 1
    assert files(tmp_path / "data") == files(tmp_path / "calm")


def test_a_lost_recipe_does_not_let_another_in(toy, tmp_path):
    run(toy(run=HERE))
    (tmp_path / "data" / "recipe.json").unlink()
    with pytest.raises(ValueError, match="has shards of another recipe, .* go back to that recipe"):
        run(toy(run=HERE, seed=1))
    assert run(toy(run=HERE)).new_units == 0
    assert (tmp_path / "data" / "recipe.json").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["show"], "show takes a shard and a row's number"),
        (["show", "train-7", "0"], "there is no shard train-7"),
        (["show", "train-00000-00", "99"], "train-00000-00 has 40 rows, got 99"),
        (["--where", "rowz > 1"], 'unable to find column "rowz"'),
    ],
)
def test_mistakes_get_one_line(data, argv, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        shards_command([data, *argv])
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_nothing_there_is_said(tmp_path, capsys):
    with pytest.raises(SystemExit, match="1"):
        shards_command([str(tmp_path)])
    assert "there is no data set at" in capsys.readouterr().err
