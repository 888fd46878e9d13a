"""Manifests of earlier schemas are read as today's."""

import json

import polars as pl
import pytest

from remask.pipeline import open_manifest
from remask.pipeline.build import run
from remask.pipeline.format import manifest
from remask.pipeline.recipe import RunConfig

NEW = (
    *("relapse", "relapse2", "recorded", "segments", "wrong_segments"),
    *("origin", *manifest.DECODED),
)


def write_old(folder, table, closed):
    """Replace a data set's manifest, closed or as one file per row."""
    if closed:
        table.write_parquet(folder / "manifest.parquet")
        return
    (folder / "manifest.parquet").unlink()
    (folder / "rows").mkdir(exist_ok=True)
    for row in table.iter_rows(named=True):
        (folder / "rows" / f"{row['shard']}.json").write_text(json.dumps(row))


@pytest.mark.parametrize("closed", [True, False])
def test_a_manifest_of_schema_3_counts_three_segments(toy, tmp_path, closed):
    run(toy(run=RunConfig(workers=0)))
    folder = tmp_path / "data"
    table = pl.read_parquet(folder / "manifest.parquet")
    old = table.drop(NEW).with_columns(schema_version=pl.lit(3, pl.Int32))
    write_old(folder, old, closed)
    read = open_manifest(str(folder)).collect()
    assert read.schema == pl.Schema(manifest.SCHEMA)
    assert set(read["segments"]) == {3}
    assert read["wrong_segments"].to_list() == read["wrong"].to_list()
    for name in ("relapse", "relapse2", "recorded"):
        assert read[name].sum() == 0
    for name in old.columns:
        assert read[name].to_list() == old[name].to_list()


@pytest.mark.parametrize("closed", [True, False])
def test_a_manifest_without_origins_is_of_rules(toy, tmp_path, closed):
    run(toy(run=RunConfig(workers=0)))
    folder = tmp_path / "data"
    table = pl.read_parquet(folder / "manifest.parquet")
    write_old(folder, table.drop("origin", *manifest.DECODED), closed)
    assert open_manifest(str(folder)).collect().equals(table)
    assert set(table["origin"]) == {"rules"}


def test_a_row_that_lacks_only_its_origin_is_damaged(toy, tmp_path):
    run(toy(run=RunConfig(workers=0)))
    path = tmp_path / "data" / "manifest.parquet"
    pl.read_parquet(path).drop("origin").write_parquet(path)
    with pytest.raises(RuntimeError, match=r"it lacks the columns \['origin'\]"):
        open_manifest(str(tmp_path / "data"))


def test_a_row_of_schema_3_that_lacks_a_column_is_damaged(toy, tmp_path):
    run(toy(run=RunConfig(workers=0)))
    path = tmp_path / "data" / "manifest.parquet"
    old = pl.read_parquet(path).drop(*NEW, "wrong").with_columns(schema_version=pl.lit(3, pl.Int32))
    old.write_parquet(path)
    with pytest.raises(RuntimeError, match=r"manifest.parquet is damaged: .*; run `remask shards"):
        open_manifest(str(tmp_path / "data"))
