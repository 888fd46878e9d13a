"""Building data sets without Ray: the same bytes whatever happens, and clear errors."""

import json
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from remask.kernels.build import Native, native
from remask.models import SudokuConfig, SudokuMDM, fingerprint, save
from remask.pipeline import build, open_manifest, probe, read_rows, source
from remask.pipeline.build import build_shard
from remask.pipeline.format import manifest
from remask.pipeline.plan import example_units, make_plan
from remask.pipeline.recipe import ProposalConfig, RunConfig
from remask.pipeline.runtime import storage
from remask.pipeline.runtime.lease import Owner
from remask.pipeline.runtime.recipes import digest
from remask.pipeline.runtime.storage import Storage, StorageError
from remask.pipeline.shards import main as shards_command
from remask.pipeline.shards import tv_bound
from remask.pipeline.sources.sudoku import SudokuSource
from remask.pipeline.sources.text import TextSource

HERE = RunConfig(workers=0)


def files(folder):
    """Every file's bytes by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def run(recipe):
    return build.run(recipe)


def test_a_build_gives_shards_and_a_manifest(toy, tmp_path):
    summary = run(toy(run=HERE))
    assert (summary.units, summary.new_units, summary.rows) == (9, 9, 340)
    table = open_manifest(str(tmp_path / "data")).collect()
    assert dict(table.schema) == manifest.SCHEMA
    assert len(table) == table["num_shards"][0] == 9
    per_split = dict(table.group_by("split").agg(pl.col("rows").sum()).iter_rows())
    assert per_split == {"train": 300, "held_out": 40}
    totals = table.select(pl.sum("keep", "mask", "wrong", "doubt", "editable", "tokens")).row(0)
    assert sum(totals[:4]) == totals[4] == totals[5] == 340 * 16
    assert min(totals) > 0
    assert table["mean_tv"].to_list() == [0.0] * 9
    assert set(table["recipe"]) == {digest(make_plan(toy()).content)}


def test_replicas_differ_and_rows_are_the_examples(toy, tmp_path):
    run(toy(run=HERE))
    first, second = (
        list(read_rows(f"{tmp_path}/data/shards/train-00001-{r:02d}.parquet")) for r in (0, 1)
    )
    for a, b in zip(first, second, strict=True):
        assert a.example_id == b.example_id
        assert np.array_equal(a.target, b.target)
    assert any(
        (a.tokens != b.tokens).any() or a.step != b.step for a, b in zip(first, second, strict=True)
    )


def test_bytes_depend_on_the_recipe_alone(toy, tmp_path):
    run(toy(run=HERE, output=str(tmp_path / "one")))
    run(toy(run=HERE, output=str(tmp_path / "two"), cache=str(tmp_path / "cache")))
    run(toy(run=HERE, output=str(tmp_path / "other"), seed=1))
    one, two, other = (files(tmp_path / name) for name in ("one", "two", "other"))
    shards = [name for name in one if name.startswith(("shards", "manifest"))]
    assert len(shards) == 10
    assert all(one[name] == two[name] for name in shards)
    assert all(one[name] != other[name] for name in shards)


def test_bytes_are_the_same_without_a_compiler(toy, tmp_path, monkeypatch):
    assert native("rows").library or "no C++ compiler found" in native("rows").detail
    run(toy(run=HERE, output=str(tmp_path / "compiled")))
    monkeypatch.setattr(
        "remask.kernels.rows.native", lambda name: Native(None, "as the test wants it")
    )
    run(toy(run=HERE, output=str(tmp_path / "numpy")))
    assert files(tmp_path / "numpy") == files(tmp_path / "compiled")


def test_a_second_run_does_nothing(toy, tmp_path, monkeypatch):
    run(toy(run=HERE))
    before = files(tmp_path / "data")
    monkeypatch.setattr(build, "build_shard", lambda *_: pytest.fail("built again"))
    summary = run(toy(run=HERE))
    assert summary.new_units == 0
    assert "existed already" in str(summary)
    assert files(tmp_path / "data") == before


class Killed(BaseException):
    """What a SIGKILL is to a test: nothing after it runs but `finally`."""


@pytest.mark.parametrize("seed", range(12))
def test_killed_at_any_write_and_run_again_gives_the_same(toy, tmp_path, monkeypatch, seed):
    run(toy(run=HERE, output=str(tmp_path / "calm")))
    chance = random.Random(seed)
    write, remove = Storage.write, Storage.remove

    def dying_write(self, name, data, **how):
        if chance.random() < 0.15:
            if chance.random() < 0.5:
                write(self, name, data, **how)  # after the write, or before it
            raise Killed
        write(self, name, data, **how)

    def dying_remove(self, names):
        names = list(names)
        if names and chance.random() < 0.3:
            remove(self, names[: chance.randrange(len(names))])
            raise Killed
        remove(self, names)

    monkeypatch.setattr(Storage, "write", dying_write)
    monkeypatch.setattr(Storage, "remove", dying_remove)
    monkeypatch.setattr(Owner, "is_dead", lambda self: True)  # as after a real kill
    kills = 0
    while True:
        try:
            run(toy(run=HERE, output=str(tmp_path / "rough")))
            break
        except Killed:
            kills += 1
    assert kills > 0
    assert files(tmp_path / "rough") == files(tmp_path / "calm")


def test_a_partial_data_set_can_be_read(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(manifest, "close", lambda storage, recipe: None)
    real, left = build_shard, [5]

    def some(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*arguments)

    monkeypatch.setattr(build, "build_shard", some)
    with pytest.raises(Killed):
        run(toy(run=HERE))
    assert len(open_manifest(str(tmp_path / "data")).collect()) == 5
    with pytest.raises(SystemExit, match="1"):
        shards_command([str(tmp_path / "data"), "verify"])
    assert "5 of 9 shards exist; run the build again" in capsys.readouterr().out


def test_another_recipe_over_the_same_output_is_refused(toy, tmp_path):
    run(toy(run=HERE))
    before = files(tmp_path / "data")
    with pytest.raises(
        ValueError, match=r"another recipe \(different: replicas 2 → 3, seed 0 → 4\)"
    ):
        run(toy(run=HERE, seed=4, replicas=3))
    assert files(tmp_path / "data") == before


def test_an_output_of_an_older_schema_is_refused(toy, tmp_path):
    run(toy(run=HERE))
    path = tmp_path / "data" / "recipe.json"
    recipe = json.loads(path.read_text())
    del recipe["schema"]  # the first version did not say it
    path.write_text(json.dumps(recipe))
    before = files(tmp_path / "data")
    with pytest.raises(ValueError, match="has schema version 1, this build writes 4; remove it or"):
        run(toy(run=HERE))
    assert files(tmp_path / "data") == before


def test_changed_data_or_backbone_is_another_recipe(toy, tmp_path, checkpoint):
    boards = tmp_path / "boards.txt"
    boards.write_text("1234341221434321\n" * 5)
    from_file = SudokuSource(side=4, file=str(boards))
    proposal = ProposalConfig(kind="top_k", backbone=checkpoint, k=2)
    run(toy(run=HERE, source=from_file, proposal=proposal))
    boards.write_text("1234341221434321\n" * 6)
    with pytest.raises(ValueError, match="another recipe .different: inputs.data '"):
        run(toy(run=HERE, source=from_file, proposal=proposal))
    boards.write_text("1234341221434321\n" * 5)
    save(SudokuMDM(SudokuConfig(side=4, layers=1, width=16, heads=2, feed_forward=8)), checkpoint)
    with pytest.raises(ValueError, match="another recipe .different: inputs.backbone '"):
        run(toy(run=HERE, source=from_file, proposal=proposal))


@pytest.mark.parametrize("where", ["memory", "s3"])
def test_other_storages_hold_the_same_bytes(toy, tmp_path, where, request):
    base = "memory://build" if where == "memory" else request.getfixturevalue("bucket")
    run(toy(run=HERE))
    run(toy(run=HERE, output=f"{base}/data"))
    here, there = Storage(str(tmp_path / "data")), Storage(f"{base}/data")
    assert there.names("shards") == here.names("shards")
    for name in here.names("shards"):
        assert there.read(f"shards/{name}") == here.read(f"shards/{name}")
    assert there.names("rows") == set()
    assert (
        open_manifest(f"{base}/data")
        .collect()
        .equals(open_manifest(str(tmp_path / "data")).collect())
    )


def test_relative_paths_mean_the_drivers_folder(toy, tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)
    proposal = ProposalConfig(kind="top_k", backbone="frozen", k=2)
    plan = make_plan(toy(output="out", cache="cache", proposal=proposal))
    assert plan.recipe.output == str(tmp_path / "out")
    assert plan.examples.uri.startswith(str(tmp_path / "cache"))
    assert plan.recipe.proposal.backbone == checkpoint
    monkeypatch.setenv(storage.SUBMITTED, "{}")
    with pytest.raises(ValueError, match="output out is relative, and a submitted job's folder"):
        make_plan(toy(output="out"))


def test_wrong_digits_are_for_sudoku(toy):
    text = TextSource(data="x.jsonl", tokenizer="y")
    with pytest.raises(ValueError, match="wrong_digit is for Sudoku; use uniform or top_k"):
        toy(source=text, proposal=ProposalConfig(kind="wrong_digit"))


def test_memory_needs_no_ray(toy):
    assert make_plan(toy(output="memory://x")).workers == 0
    assert make_plan(toy(cache="memory://x")).workers == 0
    assert make_plan(toy()).workers is None


# Top-k ------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    config = SudokuConfig(side=4, layers=1, width=32, heads=2, feed_forward=32)
    save(SudokuMDM(config), tmp_path / "frozen")
    return str(tmp_path / "frozen")


def test_top_k_draws_from_what_was_probed_and_shares_it(toy, tmp_path, checkpoint, monkeypatch):
    proposal = ProposalConfig(kind="top_k", backbone=checkpoint, k=2)
    cache = str(tmp_path / "cache")
    run(toy(run=HERE, proposal=proposal, cache=cache))
    table = open_manifest(str(tmp_path / "data")).collect()
    assert set(table["proposal"]) == {"top_k"}
    assert set(table["k"]) == {2}
    assert set(table["backbone"]) == {fingerprint(checkpoint)}
    assert 0.3 < table["mean_tv"].mean() < 1  # at least a third: one of three digits is never drawn
    recipe = toy(proposal=proposal, cache=cache)
    plan, unit = make_plan(recipe), example_units(recipe)[0]
    examples = source.read_examples(plan, unit)
    guesses = probe.read_proposals(plan, unit, examples)
    for i, row in enumerate(read_rows(f"{tmp_path}/data/shards/{unit.name}-00.parquet")):
        for n in np.flatnonzero(row.tokens[0] != row.target):
            assert row.tokens[0, n] in guesses.candidates[i, n]
    monkeypatch.setattr(probe, "probe_unit", lambda *_: pytest.fail("probed again"))
    run(toy(run=HERE, proposal=proposal, cache=cache, output=str(tmp_path / "later"), replicas=1))


def test_bound_of_a_data_set_is_layer_three(toy, tmp_path, checkpoint):
    proposal = ProposalConfig(kind="top_k", backbone=checkpoint, k=2)
    recipe = toy(run=HERE, proposal=proposal, replicas=1)
    run(recipe)
    bound = tv_bound(open_manifest(str(tmp_path / "data"))).row(
        by_predicate=pl.col("split") == "held_out", named=True
    )
    plan, unit = make_plan(recipe), example_units(recipe)[-1]
    examples = source.read_examples(plan, unit)
    guesses = probe.read_proposals(plan, unit, examples)
    total = 0.0
    for i in range(40):  # by the definition: ½ Σ |p - u| over the three other digits
        distances = 0.0
        for n in range(16):
            p = np.exp(guesses.log_probs[i, n].astype(float))
            p = p / p.sum()
            distances += 0.5 * (np.abs(p - 1 / 3).sum() + 1 / 3)
        total += 16 * distances
    expected = 2 * -np.log(1e-8) * bound["wrong_rate"] * total / 40
    assert bound["objective_shift_at_most"] == pytest.approx(expected, rel=1e-3)


def test_damaged_caches_are_named(toy, tmp_path, checkpoint):
    proposal = ProposalConfig(kind="top_k", backbone=checkpoint, k=2)
    recipe = toy(run=HERE, proposal=proposal)
    probe.run(recipe)
    unit = example_units(recipe)[0]
    storage = make_plan(recipe).proposals
    storage.write(f"{unit.name}.parquet", storage.read(f"{unit.name}.parquet")[:100])
    with pytest.raises(StorageError, match="train-00000.parquet was altered: .*; remove both"):
        run(recipe)
    storage.write_sealed(f"{unit.name}.parquet", b"PAR1")
    with pytest.raises(StorageError, match="train-00000.parquet is damaged: .*and probe again"):
        run(recipe)
    examples = make_plan(recipe).examples
    examples.write_sealed(f"{unit.name}.parquet", b"PAR1")
    with pytest.raises(StorageError, match="train-00000.parquet is damaged.*; remove it and run"):
        run(recipe)


def test_a_flipped_byte_of_a_cache_is_never_built_from(toy, tmp_path, checkpoint):
    """Of every byte that was tried none reaches a shard, for examples and proposals alike."""
    proposal = ProposalConfig(kind="top_k", backbone=checkpoint, k=2)
    recipe = toy(run=HERE, proposal=proposal)
    probe.run(recipe)
    plan, name = make_plan(recipe), f"{example_units(recipe)[0].name}.parquet"
    for cache in (plan.examples, plan.proposals):
        good = cache.read(name)
        for place in range(0, len(good), len(good) // 20):
            cache.write(name, good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :])
            with pytest.raises(StorageError, match=f"{name} was altered"):
                run(recipe)
        cache.write(name, good)
    assert run(recipe).new_units == 9


def test_probing_what_needs_none_is_refused(toy):
    with pytest.raises(ValueError, match="proposal.kind uniform needs no probing"):
        probe.run(toy(run=HERE))


def test_the_recipe_and_versions_lie_beside_the_data(toy, tmp_path):
    run(toy(run=HERE))
    data = tmp_path / "data"
    written = json.loads((data / "recipe.json").read_text())
    assert written == json.loads(json.dumps(make_plan(toy()).content))
    facts = json.loads((data / "provenance.json").read_text())
    assert facts["versions"]["torch"] == torch.__version__
